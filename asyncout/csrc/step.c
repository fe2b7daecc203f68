/* The whole of a plain step's constructor in one call: what is copied is collected and laid out,
 * a block and an event are taken, and the driver's calls are made. A step with anything unusual
 * is left to the twin in Python before anything is taken or enqueued. */
#include "hot.h"

/* What the steps of one path have in common. Like all types here it is none of the collector's:
 * nothing that it holds leads back to the path. */
typedef struct {
    PyObject_HEAD
    PyObject *lane;
    PyObject *homes, *lend;    /* of the pool: free blocks by their size, and its method */
    PyObject *waiter, *clock;  /* whose `ready` has free events, and what they are noted with */
    PyObject *dropped;         /* what inflight keeps: the twin lets go of it */
    PyObject *names_of_type;   /* what each sampler output's type hands on */
    PyObject *prompt_fields;   /* the model runner output's own, that are copied too */
    Py_ssize_t smallest_block;
    vectorcallfunc vectorcall;
} PlainStep;

/* What a step copies: named sources, where the tensors of each end, and all tensors. */
typedef struct {
    PyObject *sources, *ends, *tensors;
} Collected;

static PyObject *name_req_ids, *name_ids, *name_counts, *name_nans, *name_logprobs, *name_masks;
static PyObject *name_rows_per_request, *name_token_ids, *name_packed_mask, *name_mask_counts;
static PyObject *name_ready, *name_take, *name_pop, *name_recorded_at;
static PyObject *name_kept, *name_ends, *name_event;

/* What collecting gives: all is well; this is for the twin; or there is an exception. */
enum { FAILED = -1, UNUSUAL = 0, PLAIN = 1 };

/* Say what a missing attribute is, as the twin will say it better, or any other exception. */
static int
unusual_or_failed(void)
{
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return FAILED;
    }
    PyErr_Clear();
    return UNUSUAL;
}

/* --- collecting -------------------------------------------------------------------------- */

/* Read an attribute that may be missing: a new reference, NULL without an exception for none. */
static PyObject *
attribute_or_null(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return value;
}

/* Add a named source whose tensors have been appended already. */
static int
add_source(Collected *step, PyObject *name, PyObject *part)
{
    PyObject *end = PyLong_FromSsize_t(PyList_GET_SIZE(step->tensors));
    int failed = end == NULL || PyList_Append(step->ends, end) < 0 ||
                 PyDict_SetItem(step->sources, name, part) < 0;
    Py_XDECREF(end);
    return failed ? FAILED : PLAIN;
}

/* Add a tensor that an output reads itself, if it is one of these dimensions and rows. */
static int
add_rows(Collected *step, PyObject *name, PyObject *tensor, int32_t dimensions, Py_ssize_t rows)
{
    if (!has_rows(tensor, dimensions, rows)) {
        return UNUSUAL;
    }
    return PyList_Append(step->tensors, tensor) < 0 ? FAILED : add_source(step, name, tensor);
}

static int
add_part(Collected *step, PyObject *name, PyObject *part)
{
    return gather_from(part, step->tensors) < 0 ? FAILED : add_source(step, name, part);
}

static int
mask_has_rows(PyObject *masks, PyObject *name, int32_t dimensions, Py_ssize_t rows)
{
    PyObject *tensor = PyObject_GetAttr(masks, name);
    if (tensor == NULL) {
        return unusual_or_failed();
    }
    int fits = has_rows(tensor, dimensions, rows);
    Py_DECREF(tensor);
    return fits ? PLAIN : UNUSUAL;
}

static int
masks_fit(PyObject *masks, Py_ssize_t requests)
{
    PyObject *number = PyObject_GetAttr(masks, name_rows_per_request);
    if (number == NULL) {
        return unusual_or_failed();
    }
    int overflow = 1;
    long each = PyLong_CheckExact(number) ? PyLong_AsLongAndOverflow(number, &overflow) : 0;
    Py_DECREF(number);
    if (overflow || each < 0 || (each > 0 && requests > PY_SSIZE_T_MAX / each)) {
        return UNUSUAL;
    }
    Py_ssize_t rows = requests * each;
    int fit = mask_has_rows(masks, name_token_ids, 2, rows);
    if (fit == PLAIN) {
        fit = mask_has_rows(masks, name_packed_mask, 2, rows);
    }
    return fit == PLAIN ? mask_has_rows(masks, name_mask_counts, 1, rows) : fit;
}

/* Add what a sampler output hands on, under its names. */
static int
add_handed_on(Collected *step, PyObject *sampled, PyObject *names, Py_ssize_t requests)
{
    int has_logprobs = 0, has_masks = 0, result = PLAIN;
    for (Py_ssize_t i = 0; result == PLAIN && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        PyObject *part = PyObject_GetAttr(sampled, name);
        if (part == NULL) {
            return unusual_or_failed();
        }
        int is_logprobs = PyUnicode_Compare(name, name_logprobs) == 0;
        int is_masks = !is_logprobs && PyUnicode_Compare(name, name_masks) == 0;
        has_logprobs |= is_logprobs;
        has_masks |= is_masks;
        if (part != Py_None) {
            if (is_logprobs) {
                result = logprobs_fit(part) ? PLAIN : UNUSUAL;
            }
            else if (is_masks) {
                result = masks_fit(part, requests);
            }
            if (result == PLAIN) {
                result = add_part(step, name, part);
            }
        }
        Py_DECREF(part);
    }
    if (result != PLAIN || (has_logprobs && has_masks)) {
        return result;
    }
    return UNUSUAL; /* the twin checks them also where they are no fields */
}

/* Add the model runner output's own dicts, each as a dict that nobody else changes. */
static int
add_prompts(Collected *step, PyObject *runner_output, PyObject *names)
{
    int result = PLAIN;
    for (Py_ssize_t i = 0; result == PLAIN && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        PyObject *part = attribute_or_null(runner_output, name);
        if (part == NULL) {
            result = PyErr_Occurred() ? FAILED : PLAIN;
            continue;
        }
        if (part != Py_None) {
            if (!PyDict_CheckExact(part)) {
                result = UNUSUAL;
            }
            else if (PyDict_GET_SIZE(part) > 0) {
                PyObject *own = PyDict_Copy(part);
                result = own == NULL ? FAILED : add_part(step, name, own);
                Py_XDECREF(own);
            }
        }
        Py_DECREF(part);
    }
    return result;
}

static Py_ssize_t
requests_of(PyObject *runner_output)
{
    PyObject *req_ids = PyObject_GetAttr(runner_output, name_req_ids);
    Py_ssize_t requests = req_ids == NULL ? -1 : PyObject_Size(req_ids);
    Py_XDECREF(req_ids);
    return requests;
}

/* Collect in the twin's order: what the output reads itself, then what is handed on. */
static int
collect(Collected *step, const PlainStep *plain, PyObject *runner_output, PyObject *sampled,
        PyObject *counts)
{
    PyObject *names = PyDict_GetItemWithError(plain->names_of_type, (PyObject *)Py_TYPE(sampled));
    if (names == NULL) {
        return PyErr_Occurred() ? FAILED : UNUSUAL; /* the twin reads a new type's fields */
    }
    Py_ssize_t requests = requests_of(runner_output);
    if (requests < 0) {
        return unusual_or_failed();
    }
    PyObject *ids = PyObject_GetAttr(sampled, name_ids);
    if (ids == NULL) {
        return unusual_or_failed();
    }
    int result = add_rows(step, name_ids, ids, 2, requests);
    Py_DECREF(ids);
    if (result == PLAIN) {
        result = add_rows(step, name_counts, counts, 1, requests);
    }
    if (result == PLAIN) {
        PyObject *nans = attribute_or_null(sampled, name_nans);
        if (nans == NULL) {
            result = PyErr_Occurred() ? FAILED : PLAIN;
        }
        else if (nans != Py_None) {
            result = add_rows(step, name_nans, nans, 1, requests);
        }
        Py_XDECREF(nans);
    }
    if (result == PLAIN) {
        result = add_handed_on(step, sampled, names, requests);
    }
    return result == PLAIN ? add_prompts(step, runner_output, plain->prompt_fields) : result;
}

/* --- what is taken ----------------------------------------------------------------------- */

/* Take the last item of a deque: a new reference, NULL without an exception where it is empty. */
static PyObject *
take_last(PyObject *deque)
{
    Py_ssize_t length = PyObject_Size(deque);
    return length > 0 ? PyObject_CallMethodNoArgs(deque, name_pop) : NULL;
}

/* Lend a free block of the size that the pool's lend() would choose; call that for a new one. */
static PyObject *
lend_block(const PlainStep *plain, size_t bytes)
{
    size_t size = (size_t)plain->smallest_block;
    while (size < bytes) {
        size <<= 1;
    }
    PyObject *key = PyLong_FromSize_t(size), *lease = NULL;
    PyObject *home = key == NULL ? NULL : PyDict_GetItemWithError(plain->homes, key);
    PyObject *block = home == NULL ? NULL : take_last(home);
    if (block != NULL) {
        lease = new_lease(block);
        Py_DECREF(block);
    }
    else if (!PyErr_Occurred()) {
        lease = PyObject_CallOneArg(plain->lend, key); /* as large as what it was computed from */
    }
    Py_XDECREF(key);
    return lease;
}

/* Take a free event and note the time; the waiter's take() makes a new one where all are in use. */
static PyObject *
take_event(const PlainStep *plain)
{
    PyObject *ready = PyObject_GetAttr(plain->waiter, name_ready);
    PyObject *event = ready == NULL ? NULL : take_last(ready);
    Py_XDECREF(ready);
    if (event == NULL) {
        return PyErr_Occurred() ? NULL : PyObject_CallMethodNoArgs(plain->waiter, name_take);
    }
    PyObject *now = PyObject_CallNoArgs(plain->clock);
    if (now == NULL || PyObject_SetAttr(event, name_recorded_at, now) < 0) {
        Py_CLEAR(event);
    }
    Py_XDECREF(now);
    return event;
}

/* --- the step ---------------------------------------------------------------------------- */

/* Lay collected tensors out, note in the output what the copies touch, and enqueue them. */
static int
enqueue(const PlainStep *plain, PyObject *output, const Collected *step)
{
    size_t bytes;
    PyObject *landing = lay_out(plain->lane, step->tensors, &bytes);
    if (landing == NULL) {
        return PyErr_Occurred() ? FAILED : UNUSUAL;
    }
    PyObject *kept = NULL, *event = NULL;
    int result = FAILED;
    if (take_lease(landing, lend_block(plain, bytes)) == 0 &&
        (kept = PyTuple_Pack(3, step->sources, landing, Py_None)) != NULL &&
        PyObject_SetAttr(output, name_ends, step->ends) == 0 &&
        PyObject_SetAttr(output, name_kept, kept) == 0 && (event = take_event(plain)) != NULL &&
        enqueue_landing(landing, event) == 0 && PyObject_SetAttr(output, name_event, event) == 0) {
        result = PLAIN;
    }
    Py_XDECREF(event);
    Py_XDECREF(kept);
    Py_DECREF(landing);
    return result;
}

static PyObject *
plain_call(PyObject *self, PyObject *const *arguments, size_t number, PyObject *keywords)
{
    const PlainStep *plain = (const PlainStep *)self;
    if (PyVectorcall_NARGS(number) != 4 || keywords != NULL) {
        PyErr_SetString(PyExc_TypeError, "a plain step takes an output, a model runner output, a "
                                         "sampler output and counts");
        return NULL;
    }
    Py_ssize_t dropped = PyObject_Size(plain->dropped);
    if (dropped != 0 || may_be_capturing((Lane *)plain->lane)) {
        return dropped < 0 ? NULL : Py_NewRef(Py_False);
    }
    Collected step = {PyDict_New(), PyList_New(0), PyList_New(0)};
    int result = FAILED;
    if (step.sources != NULL && step.ends != NULL && step.tensors != NULL) {
        result = collect(&step, plain, arguments[1], arguments[2], arguments[3]);
    }
    if (result == PLAIN) {
        result = enqueue(plain, arguments[0], &step);
    }
    Py_XDECREF(step.sources);
    Py_XDECREF(step.ends);
    Py_XDECREF(step.tensors);
    return result == FAILED ? NULL : PyBool_FromLong(result == PLAIN);
}

static PyObject *
plain_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"lane", "homes", "lend", "smallest_block", "waiter", "clock",
                            "dropped", "names_of_type", "prompt_fields", NULL};
    PyObject *lane, *homes, *lend, *waiter, *clock, *dropped, *names_of_type, *prompt_fields;
    Py_ssize_t smallest;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO!OnOOOO!O!", names, &lane,
                                     &PyDict_Type, &homes, &lend, &smallest, &waiter, &clock,
                                     &dropped, &PyDict_Type, &names_of_type, &PyTuple_Type,
                                     &prompt_fields)) {
        return NULL;
    }
    if (!is_lane(lane) || smallest <= 0) {
        PyErr_SetString(PyExc_TypeError, "a plain step needs a lane and a block's least size");
        return NULL;
    }
    PlainStep *plain = (PlainStep *)type->tp_alloc(type, 0);
    if (plain != NULL) {
        plain->lane = Py_NewRef(lane);
        plain->homes = Py_NewRef(homes);
        plain->lend = Py_NewRef(lend);
        plain->waiter = Py_NewRef(waiter);
        plain->clock = Py_NewRef(clock);
        plain->dropped = Py_NewRef(dropped);
        plain->names_of_type = Py_NewRef(names_of_type);
        plain->prompt_fields = Py_NewRef(prompt_fields);
        plain->smallest_block = smallest;
        plain->vectorcall = plain_call;
    }
    return (PyObject *)plain;
}

static void
plain_dealloc(PyObject *self)
{
    PlainStep *plain = (PlainStep *)self;
    Py_DECREF(plain->lane);
    Py_DECREF(plain->homes);
    Py_DECREF(plain->lend);
    Py_DECREF(plain->waiter);
    Py_DECREF(plain->clock);
    Py_DECREF(plain->dropped);
    Py_DECREF(plain->names_of_type);
    Py_DECREF(plain->prompt_fields);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject plain_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "asyncout._hot.PlainStep",
    .tp_doc = "Enqueues a plain step's output and gives True; False where nothing was done.",
    .tp_basicsize = sizeof(PlainStep),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(PlainStep, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = plain_new,
    .tp_dealloc = plain_dealloc,
};

int
add_step(PyObject *module)
{
    const struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&name_req_ids, "req_ids"},
        {&name_ids, "sampled_token_ids"},
        {&name_counts, "num_sampled_tokens"},
        {&name_nans, "num_nans"},
        {&name_logprobs, "logprobs_tensors"},
        {&name_masks, "sampling_mask_tensors"},
        {&name_rows_per_request, "rows_per_request"},
        {&name_token_ids, "token_ids"},
        {&name_packed_mask, "packed_mask"},
        {&name_mask_counts, "counts"},
        {&name_ready, "ready"},
        {&name_take, "take"},
        {&name_pop, "pop"},
        {&name_recorded_at, "recorded_at"},
        {&name_kept, "_kept"},
        {&name_ends, "_ends"},
        {&name_event, "_event"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL) {
            return -1;
        }
    }
    return PyModule_AddType(module, &plain_type);
}
