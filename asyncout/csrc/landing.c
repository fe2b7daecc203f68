/* Where a step's tensors land: a leased block, copies into it, and views of it. */
#include "hot.h"

/* --- the lease --------------------------------------------------------------------------- */

/* A block's memory while it is lent: the base of all views of it. The block goes home to its
 * pool when the last of them is gone. */
typedef struct {
    PyObject_HEAD
    PyObject *block;
    char *address;
    Py_ssize_t size;
} Lease;

static PyObject *name_home, *name_append, *name_address, *name_size;
static PyTypeObject lease_type;

static PyObject *
lease_of(PyTypeObject *type, PyObject *block)
{
    PyObject *address = PyObject_GetAttr(block, name_address);
    PyObject *size = address == NULL ? NULL : PyObject_GetAttr(block, name_size);
    Lease *lease = NULL;
    if (size != NULL) {
        unsigned long long number = PyLong_AsUnsignedLongLong(address);
        Py_ssize_t bytes = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(size);
        if (!PyErr_Occurred() && (lease = (Lease *)type->tp_alloc(type, 0)) != NULL) {
            lease->block = Py_NewRef(block);
            lease->address = (char *)(uintptr_t)number;
            lease->size = bytes;
        }
    }
    Py_XDECREF(address);
    Py_XDECREF(size);
    return (PyObject *)lease;
}

PyObject *
new_lease(PyObject *block)
{
    return lease_of(&lease_type, block);
}

static PyObject *
lease_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"block", NULL};
    PyObject *block;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O", names, &block)) {
        return NULL;
    }
    return lease_of(type, block);
}

static void
lease_dealloc(PyObject *self)
{
    Lease *lease = (Lease *)self;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback); /* it may go while an error is on its way */
    PyObject *home = PyObject_GetAttr(lease->block, name_home);
    PyObject *done = home == NULL ? NULL : PyObject_CallMethodOneArg(home, name_append,
                                                                     lease->block);
    if (done == NULL) {
        PyErr_WriteUnraisable(lease->block); /* the lease itself would be brought back to life */
    }
    Py_XDECREF(done);
    Py_XDECREF(home);
    PyErr_Restore(type, value, traceback);
    Py_DECREF(lease->block);
    Py_TYPE(self)->tp_free(self);
}

static int
lease_buffer(PyObject *self, Py_buffer *view, int flags)
{
    Lease *lease = (Lease *)self;
    return PyBuffer_FillInfo(view, self, lease->address, lease->size, 0, flags);
}

static PyObject *
lease_block(PyObject *self, void *unused)
{
    return Py_NewRef(((Lease *)self)->block);
}

static PyGetSetDef lease_attributes[] = {
    {"block", lease_block, NULL, "The block that is lent.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyBufferProcs lease_as_buffer = {.bf_getbuffer = lease_buffer};

static PyTypeObject lease_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncout._hot.Lease",
    .tp_doc = "A block's memory while it is lent: the base of all views of it.",
    .tp_basicsize = sizeof(Lease),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = lease_new,
    .tp_dealloc = lease_dealloc,
    .tp_as_buffer = &lease_as_buffer,
    .tp_getset = lease_attributes,
};

/* --- where one tensor lands -------------------------------------------------------------- */

/* Most dimensions of a tensor that is laid out here; any other goes to the twin in Python. */
#define MOST_DIMENSIONS 4

/* What was read of a tensor when it was laid out. It is not read again: its owner may resize or
 * replace it while its copy is on the way, and then it says nothing about the bytes that arrive. */
typedef struct {
    uint64_t source;
    size_t offset;
    DLType type;
    int32_t dimensions;
    int64_t shape[MOST_DIMENSIONS];
} Place;

/* --- a part of it, as the buffer protocol shows it --------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *lease;
    char *address;
    char format[2];
    Py_ssize_t itemsize;
    int dimensions;
    Py_ssize_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
} Part;

static PyTypeObject part_type;

/* Give the buffer protocol's letter of a dtype, 0 where it has none. */
static char
letter_of(DLType type)
{
    if (type.lanes == 1) {
        switch (type.code << 8 | type.bits) {
        case DL_INT << 8 | 8: return 'b';
        case DL_INT << 8 | 16: return 'h';
        case DL_INT << 8 | 32: return 'i';
        case DL_INT << 8 | 64: return 'q';
        case DL_UINT << 8 | 8: return 'B';
        case DL_UINT << 8 | 16: return 'H';
        case DL_UINT << 8 | 32: return 'I';
        case DL_UINT << 8 | 64: return 'Q';
        case DL_FLOAT << 8 | 16: return 'e';
        case DL_FLOAT << 8 | 32: return 'f';
        case DL_FLOAT << 8 | 64: return 'd';
        case DL_BOOL << 8 | 8: return '?';
        default: break;
        }
    }
    return 0;
}

static PyObject *
new_part(PyObject *lease, char *address, const Place *like)
{
    char letter = letter_of(like->type);
    if (letter == 0) {
        PyErr_SetString(PyExc_TypeError, "the buffer protocol has no such dtype");
        return NULL;
    }
    Part *part = PyObject_New(Part, &part_type);
    if (part == NULL) {
        return NULL;
    }
    part->lease = Py_NewRef(lease);
    part->address = address;
    part->format[0] = letter;
    part->format[1] = 0;
    part->itemsize = like->type.bits / 8;
    part->dimensions = like->dimensions;
    Py_ssize_t step = part->itemsize;
    for (int d = like->dimensions - 1; d >= 0; d--) {
        part->shape[d] = (Py_ssize_t)like->shape[d];
        part->strides[d] = step;
        step *= part->shape[d];
    }
    return (PyObject *)part;
}

static void
part_dealloc(PyObject *self)
{
    Py_DECREF(((Part *)self)->lease);
    PyObject_Free(self);
}

static int
part_buffer(PyObject *self, Py_buffer *view, int flags)
{
    Part *part = (Part *)self;
    view->obj = Py_NewRef(self);
    view->buf = part->address;
    view->itemsize = part->itemsize;
    view->readonly = 0;
    view->ndim = part->dimensions;
    view->format = flags & PyBUF_FORMAT ? part->format : NULL;
    view->shape = flags & PyBUF_ND ? part->shape : NULL;
    view->strides = flags & PyBUF_STRIDES ? part->strides : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    view->len = part->itemsize;
    for (int d = 0; d < part->dimensions; d++) {
        view->len *= part->shape[d];
    }
    return 0;
}

static PyObject *
part_shape(PyObject *self, void *unused)
{
    Part *part = (Part *)self;
    PyObject *shape = PyTuple_New(part->dimensions);
    for (int d = 0; shape != NULL && d < part->dimensions; d++) {
        PyObject *length = PyLong_FromSsize_t(part->shape[d]);
        if (length == NULL) {
            Py_CLEAR(shape);
            break;
        }
        PyTuple_SET_ITEM(shape, d, length);
    }
    return shape;
}

static PyGetSetDef part_attributes[] = {
    {"shape", part_shape, NULL, "As an array of it has.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyBufferProcs part_as_buffer = {.bf_getbuffer = part_buffer};

static PyTypeObject part_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncout._hot.Part",
    .tp_doc = "A part of a leased block, for whatever reads buffers.",
    .tp_basicsize = sizeof(Part),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = part_dealloc,
    .tp_as_buffer = &part_as_buffer,
    .tp_getset = part_attributes,
};

/* --- a part of it, as a torch tensor ----------------------------------------------------- */

typedef struct {
    DLManaged managed;
    int64_t shape_and_strides[];
} View;

static void
view_deleter(DLManaged *managed)
{
    if (Py_IsInitialized()) { /* else nobody can read the block any more */
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF((PyObject *)managed->context);
        PyGILState_Release(state);
    }
    free(managed);
}

static PyObject *
new_view(PyObject *lease, char *address, const Place *like)
{
    size_t dimensions = (size_t)like->dimensions;
    View *view = malloc(sizeof(View) + 2 * dimensions * sizeof(int64_t));
    if (view == NULL) {
        return PyErr_NoMemory();
    }
    int64_t *shape = view->shape_and_strides, *strides = shape + dimensions, step = 1;
    for (size_t d = dimensions; d-- > 0;) {
        shape[d] = like->shape[d];
        strides[d] = step;
        step *= like->shape[d];
    }
    view->managed = (DLManaged){
        .version = {DLPACK_MAJOR, 0},
        .context = Py_NewRef(lease),
        .deleter = view_deleter,
        .tensor = {
            .data = address,
            .device_type = DL_CPU,
            .dimensions = like->dimensions,
            .type = like->type,
            .shape = shape,
            .strides = strides,
        },
    };
    void *tensor = NULL;
    if (exchange->object_from_managed(&view->managed, &tensor) != 0) {
        /* Whether torch has taken the view over, and will give it back, it does not tell. So the
         * block may be lost, which is better than being lent twice. */
        return NULL;
    }
    return tensor;
}

/* --- the landing ------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *lane, *sources, *lease;
    Py_ssize_t count;
    Place *places;
    size_t *sizes; /* as the driver takes them; one piece of memory with the places */
} Landing;

static PyTypeObject landing_type;

/* Every result begins at a multiple of this; see ALIGNMENT in landing.py. */
#define ALIGNMENT 64

/* Lay a tensor out behind `end` and give its bytes; 0 where it is not on the lane's device,
 * contiguous, of few dimensions, or its memory does not hold its values. */
static size_t
lay_out_plain(PyObject *source, const Lane *lane, Place *place, size_t *end)
{
    DLTensor tensor;
    if (!look_at(source, &tensor) || !is_device_of(lane, &tensor) ||
        tensor.dimensions > MOST_DIMENSIONS || !is_contiguous(&tensor) ||
        !holds_its_values(source, &tensor)) {
        return 0;
    }
    place->source = (uint64_t)(uintptr_t)tensor.data + tensor.byte_offset;
    place->offset = *end;
    place->type = tensor.type;
    place->dimensions = tensor.dimensions;
    for (int32_t d = 0; d < tensor.dimensions; d++) {
        place->shape[d] = tensor.shape[d];
    }
    size_t size = bytes_of(&tensor);
    *end += (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    return size;
}

PyObject *
lay_out(PyObject *lane, PyObject *sources, size_t *bytes)
{
    Py_ssize_t count = PyList_GET_SIZE(sources);
    Place *places = PyMem_Malloc((size_t)count * (sizeof(Place) + sizeof(size_t)));
    if (places == NULL) {
        return PyErr_NoMemory();
    }
    size_t *sizes = (size_t *)(places + count);
    *bytes = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        sizes[i] = lay_out_plain(PyList_GET_ITEM(sources, i), (Lane *)lane, &places[i], bytes);
        if (sizes[i] == 0) {
            PyMem_Free(places);
            return NULL;
        }
    }
    Landing *landing = PyObject_New(Landing, &landing_type);
    if (landing == NULL) {
        PyMem_Free(places);
        return NULL;
    }
    landing->lane = Py_NewRef(lane);
    landing->sources = Py_NewRef(sources); /* kept alive for the copies; not looked at again */
    landing->lease = NULL;
    landing->count = count;
    landing->places = places;
    landing->sizes = sizes;
    return (PyObject *)landing;
}

int
take_lease(PyObject *landing, PyObject *lease)
{
    if (lease != NULL && Py_TYPE(lease) != &lease_type) {
        PyErr_SetString(PyExc_TypeError, "the lender gave no lease");
        Py_CLEAR(lease);
    }
    ((Landing *)landing)->lease = lease;
    return lease == NULL ? -1 : 0;
}

PyObject *
land(PyObject *module, PyObject *const *arguments, Py_ssize_t number)
{
    if (number != 4 || !is_lane(arguments[0]) || !PyList_Check(arguments[3])) {
        PyErr_SetString(PyExc_TypeError,
                        "land takes a lane, a lender, a fallback and a list of tensors");
        return NULL;
    }
    PyObject *lend = arguments[1], *fallback = arguments[2], *sources = arguments[3];
    size_t end;
    PyObject *landing = lay_out(arguments[0], sources, &end);
    if (landing == NULL) {
        return PyErr_Occurred() ? NULL : PyObject_CallOneArg(fallback, sources);
    }
    PyObject *bytes = PyLong_FromSize_t(end);
    PyObject *lease = bytes == NULL ? NULL : PyObject_CallOneArg(lend, bytes);
    Py_XDECREF(bytes);
    if (take_lease(landing, lease) < 0) {
        Py_CLEAR(landing);
    }
    return landing;
}

static void
landing_dealloc(PyObject *self)
{
    Landing *landing = (Landing *)self;
    Py_DECREF(landing->lane);
    Py_DECREF(landing->sources);
    Py_XDECREF(landing->lease);
    PyMem_Free(landing->places);
    PyObject_Free(self);
}

/* Copies of a step that need no memory from the heap: sixteen prompts' logprobs have 50. */
#define STEP_COPIES 64

int
enqueue_landing(PyObject *self, PyObject *event)
{
    Landing *landing = (Landing *)self;
    uint64_t handle = 0;
    if (event != NULL && handle_of(event, &handle) < 0) {
        return -1;
    }
    Py_ssize_t count = landing->count;
    uint64_t own[2 * STEP_COPIES], *targets = own;
    if (count > STEP_COPIES && (targets = PyMem_New(uint64_t, 2 * (size_t)count)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    uint64_t *sources = targets + count;
    uint64_t base = (uint64_t)(uintptr_t)((Lease *)landing->lease)->address;
    for (Py_ssize_t i = 0; i < count; i++) {
        targets[i] = base + landing->places[i].offset;
        sources[i] = landing->places[i].source;
    }
    int failed = submit((Lane *)landing->lane, targets, sources, landing->sizes, count, handle);
    if (targets != own) {
        PyMem_Free(targets);
    }
    return failed;
}

static PyObject *
landing_enqueue(PyObject *self, PyObject *const *arguments, Py_ssize_t number)
{
    PyObject *event = number > 0 && arguments[0] != Py_None ? arguments[0] : NULL;
    if (enqueue_landing(self, event) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

typedef PyObject *(*MakeView)(PyObject *lease, char *address, const Place *like);

static PyObject *
view_at(const Landing *landing, Py_ssize_t index, MakeView make)
{
    if (index < 0 || index >= landing->count) {
        PyErr_SetString(PyExc_IndexError, "a landing has no such place");
        return NULL;
    }
    const Place *place = &landing->places[index];
    return make(landing->lease, ((Lease *)landing->lease)->address + place->offset, place);
}

static PyObject *
landing_part(PyObject *self, PyObject *place)
{
    Py_ssize_t index = PyLong_AsSsize_t(place);
    return PyErr_Occurred() ? NULL : view_at((Landing *)self, index, new_part);
}

static PyObject *
landing_tensor(PyObject *self, PyObject *place)
{
    Py_ssize_t index = PyLong_AsSsize_t(place);
    return PyErr_Occurred() ? NULL : view_at((Landing *)self, index, new_view);
}

static PyObject *
landing_tensors(PyObject *self, PyObject *const *arguments, Py_ssize_t number)
{
    if (number != 2) {
        PyErr_SetString(PyExc_TypeError, "tensors takes the first place and the one behind the last");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(arguments[0]);
    Py_ssize_t stop = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(arguments[1]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    PyObject *views = PyTuple_New(stop > start ? stop - start : 0);
    for (Py_ssize_t i = start; views != NULL && i < stop; i++) {
        PyObject *view = view_at((Landing *)self, i, new_view);
        if (view == NULL) {
            Py_CLEAR(views);
            break;
        }
        PyTuple_SET_ITEM(views, i - start, view);
    }
    PyObject *iterator = views == NULL ? NULL : PyObject_GetIter(views);
    Py_XDECREF(views);
    return iterator;
}

static PyMethodDef landing_methods[] = {
    {"enqueue", FAST(landing_enqueue), "Enqueue the copies, and an event behind them."},
    {"part", landing_part, METH_O, "Give what has arrived of one source, as a buffer."},
    {"tensor", landing_tensor, METH_O, "Give what has arrived of one source, as a tensor."},
    {"tensors", FAST(landing_tensors), "Give the tensors of the sources from a place on."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject landing_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncout._hot.Landing",
    .tp_doc = "Where the tensors of one step land: a leased block and the copies into it.",
    .tp_basicsize = sizeof(Landing),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = landing_dealloc,
    .tp_methods = landing_methods,
};

int
add_landing(PyObject *module)
{
    name_home = PyUnicode_InternFromString("home");
    name_append = PyUnicode_InternFromString("append");
    name_address = PyUnicode_InternFromString("address");
    name_size = PyUnicode_InternFromString("size");
    if (!name_home || !name_append || !name_address || !name_size) {
        return -1;
    }
    if (PyType_Ready(&part_type) < 0 || PyType_Ready(&landing_type) < 0) {
        return -1;
    }
    return PyModule_AddType(module, &lease_type);
}
