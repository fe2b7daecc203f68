/* The driver's calls of one step, through the addresses of its functions. */
#include "hot.h"

typedef int (*OneArgument)(void *first);
typedef int (*RecordEvent)(void *event, void *stream);
typedef int (*WaitEvent)(void *stream, void *event, unsigned flags);
typedef int (*IsCapturing)(void *stream, int *status);
typedef int (*CopyToHost)(void *target, uint64_t source, size_t bytes, void *stream);
typedef int (*CopyBatch)(uint64_t *targets, uint64_t *sources, size_t *sizes, size_t count,
                         void *attributes, size_t *starts, size_t number, void *stream);

static PyObject *name_handle;

int
handle_of(PyObject *event, uint64_t *handle)
{
    PyObject *number = PyObject_GetAttr(event, name_handle);
    if (number == NULL) {
        return -1;
    }
    *handle = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

/* Take what a function gave that was to raise an error; there is one afterwards, whatever it did. */
static void
expect_error(PyObject *outcome)
{
    if (outcome != NULL) {
        Py_DECREF(outcome);
        PyErr_SetString(PyExc_RuntimeError, "a driver call failed and nothing was raised");
    }
}

/* --- single calls ------------------------------------------------------------------------ */

/* One of the driver's functions that takes a handle. */
typedef struct {
    PyObject_HEAD
    OneArgument function;
    int waits;
    vectorcallfunc vectorcall;
} Call;

static PyObject *
call_call(PyObject *self, PyObject *const *arguments, size_t number, PyObject *keywords)
{
    if (PyVectorcall_NARGS(number) != 1 || keywords != NULL) {
        PyErr_SetString(PyExc_TypeError, "a driver call takes one handle");
        return NULL;
    }
    void *handle = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(arguments[0]);
    if (handle == (void *)-1 && PyErr_Occurred()) {
        return NULL;
    }
    const Call *call = (const Call *)self;
    int result;
    if (call->waits) {
        Py_BEGIN_ALLOW_THREADS
        result = call->function(handle);
        Py_END_ALLOW_THREADS
    }
    else { /* returns at once: giving the lock away would cost more than the call */
        result = call->function(handle);
    }
    return PyLong_FromLong(result);
}

static PyObject *
call_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"function", "waits", NULL};
    unsigned long long function;
    int waits;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Kp", names, &function, &waits)) {
        return NULL;
    }
    Call *call = (Call *)type->tp_alloc(type, 0);
    if (call != NULL) {
        call->function = (OneArgument)(uintptr_t)function;
        call->waits = waits;
        call->vectorcall = call_call;
    }
    return (PyObject *)call;
}

static PyTypeObject call_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncout._hot.Call",
    .tp_doc = "One of the driver's functions that takes a handle; gives its result.",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Call, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = call_new,
};

/* --- events on the current stream -------------------------------------------------------- */

/* Records an event in whatever stream of a device is torch's current one. */
typedef struct {
    PyObject_HEAD
    RecordEvent function;
    int device_type, device_index;
    PyObject *fail;
    vectorcallfunc vectorcall;
} Mark;

static PyObject *
mark_call(PyObject *self, PyObject *const *arguments, size_t number, PyObject *keywords)
{
    Mark *mark = (Mark *)self;
    if (PyVectorcall_NARGS(number) != 1 || keywords != NULL) {
        PyErr_SetString(PyExc_TypeError, "a mark takes one event");
        return NULL;
    }
    uint64_t event;
    void *stream = NULL;
    if (handle_of(arguments[0], &event) < 0 ||
        exchange->current_stream(mark->device_type, mark->device_index, &stream) != 0) {
        return NULL;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = mark->function((void *)(uintptr_t)event, stream);
    Py_END_ALLOW_THREADS
    if (result != 0) {
        expect_error(PyObject_CallFunction(mark->fail, "i", result));
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
mark_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"function", "device_type", "device_index", "fail", NULL};
    unsigned long long function;
    int device_type, device_index;
    PyObject *fail;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "KiiO", names, &function, &device_type,
                                     &device_index, &fail)) {
        return NULL;
    }
    if (exchange == NULL || exchange->current_stream == NULL) {
        PyErr_SetString(PyExc_NotImplementedError, "this torch does not tell its current stream");
        return NULL;
    }
    Mark *mark = (Mark *)type->tp_alloc(type, 0);
    if (mark != NULL) {
        mark->function = (RecordEvent)(uintptr_t)function;
        mark->device_type = device_type;
        mark->device_index = device_index;
        mark->fail = Py_NewRef(fail);
        mark->vectorcall = mark_call;
    }
    return (PyObject *)mark;
}

static void
mark_dealloc(PyObject *self)
{
    Py_XDECREF(((Mark *)self)->fail);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject mark_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncout._hot.Mark",
    .tp_doc = "Records an event in the current stream of a device.",
    .tp_basicsize = sizeof(Mark),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Mark, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = mark_new,
    .tp_dealloc = mark_dealloc,
};

/* --- a step's calls ---------------------------------------------------------------------- */

/* Like all types here it is none of the collector's: `fail` must not lead back to it. */
struct Lane {
    PyObject_HEAD
    RecordEvent record;
    WaitEvent wait;
    CopyToHost copy_one;
    CopyBatch copy_batch;
    IsCapturing is_capturing; /* NULL where nothing asks the lane */
    void *attributes;
    Py_ssize_t few;
    int device_type, device_index;
    void *main, *copy, *marker;
    PyObject *fail;
};

enum { CALL_RECORD_MAIN, CALL_WAIT, CALL_COPY, CALL_RECORD };

static PyObject *
lane_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"record", "wait", "copy_one", "copy_batch", "is_capturing",
                            "attributes", "few", "device_type", "device_index", "main", "copy",
                            "marker", "fail", NULL};
    unsigned long long record, wait, one, batch, capturing, attributes, main, copy, marker;
    Py_ssize_t few;
    int device_type, device_index;
    PyObject *fail;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "KKKKKKniiKKKO", names, &record, &wait,
                                     &one, &batch, &capturing, &attributes, &few, &device_type,
                                     &device_index, &main, &copy, &marker, &fail)) {
        return NULL;
    }
    Lane *lane = (Lane *)type->tp_alloc(type, 0);
    if (lane != NULL) {
        lane->record = (RecordEvent)(uintptr_t)record;
        lane->wait = (WaitEvent)(uintptr_t)wait;
        lane->copy_one = (CopyToHost)(uintptr_t)one;
        lane->copy_batch = (CopyBatch)(uintptr_t)batch;
        lane->is_capturing = (IsCapturing)(uintptr_t)capturing;
        lane->attributes = (void *)(uintptr_t)attributes;
        lane->few = few;
        lane->device_type = device_type;
        lane->device_index = device_index;
        lane->main = (void *)(uintptr_t)main;
        lane->copy = (void *)(uintptr_t)copy;
        lane->marker = (void *)(uintptr_t)marker;
        lane->fail = Py_NewRef(fail);
    }
    return (PyObject *)lane;
}

static void
lane_dealloc(PyObject *self)
{
    Py_XDECREF(((Lane *)self)->fail);
    Py_TYPE(self)->tp_free(self);
}

int
is_device_of(const Lane *lane, const DLTensor *tensor)
{
    return tensor->device_type == lane->device_type && tensor->device_index == lane->device_index;
}

int
may_be_capturing(const Lane *lane)
{
    void *stream = NULL;
    int status = 0;
    if (lane->is_capturing == NULL || exchange == NULL || exchange->current_stream == NULL) {
        return 1;
    }
    if (exchange->current_stream(lane->device_type, lane->device_index, &stream) != 0) {
        PyErr_Clear();
        return 1;
    }
    return lane->is_capturing(stream, &status) != 0 || status != 0;
}

/* Make the calls; give the driver's result, and in `call` the one that gave it. */
static int
make_calls(const Lane *lane, uint64_t *targets, uint64_t *sources, size_t *sizes, Py_ssize_t count,
           void *event, int *call)
{
    int result = 0;
    if (lane->marker != NULL) {
        *call = CALL_RECORD_MAIN;
        if ((result = lane->record(lane->marker, lane->main)) != 0) {
            return result;
        }
        *call = CALL_WAIT;
        if ((result = lane->wait(lane->copy, lane->marker, 0)) != 0) {
            return result;
        }
    }
    *call = CALL_COPY;
    if (count > lane->few) {
        size_t starts[1] = {0};
        result = lane->copy_batch(targets, sources, sizes, (size_t)count, lane->attributes, starts,
                                  1, lane->copy);
    }
    else {
        for (Py_ssize_t i = 0; result == 0 && i < count; i++) {
            result = lane->copy_one((void *)(uintptr_t)targets[i], sources[i], sizes[i],
                                    lane->copy);
        }
    }
    if (result == 0 && event != NULL) {
        *call = CALL_RECORD;
        result = lane->record(event, lane->copy);
    }
    return result;
}

int
submit(Lane *lane, uint64_t *targets, uint64_t *sources, size_t *sizes, Py_ssize_t count,
       uint64_t event)
{
    int result, call = 0;
    /* A full queue makes the driver wait for the device: not with the interpreter's lock. */
    Py_BEGIN_ALLOW_THREADS
    result = make_calls(lane, targets, sources, sizes, count, (void *)(uintptr_t)event, &call);
    Py_END_ALLOW_THREADS
    if (result == 0) {
        return 0;
    }
    expect_error(PyObject_CallFunction(lane->fail, "ii", result, call));
    return -1;
}

static PyTypeObject lane_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncout._hot.Lane",
    .tp_doc = "The driver's functions and handles that a step's copies need.",
    .tp_basicsize = sizeof(Lane),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = lane_new,
    .tp_dealloc = lane_dealloc,
};

int
is_lane(PyObject *object)
{
    return Py_TYPE(object) == &lane_type;
}

int
add_driver(PyObject *module)
{
    name_handle = PyUnicode_InternFromString("handle");
    if (name_handle == NULL || PyModule_AddType(module, &call_type) < 0 ||
        PyModule_AddType(module, &mark_type) < 0) {
        return -1;
    }
    return PyModule_AddType(module, &lane_type);
}
