/* The hot path's loops, compiled: what a step costs the host in Python it pays in cold code.
 *
 * Each function has a twin in hot.py that gives the same and explains what is wrong: one
 * that meets anything unusual here returns None, and the twin takes over. No header but
 * Python's is needed; the driver is called through the addresses that cuda_driver.py found.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* --- integers of a buffer, whatever their width ------------------------------------------ */

typedef struct {
    Py_buffer buffer;
    int is_signed;
} Ints;

/* Open a buffer of integers; 0 and a clean slate when it is none, or has other dimensions. */
static int
open_ints(PyObject *object, int dimensions, Ints *ints)
{
    if (PyObject_GetBuffer(object, &ints->buffer, PyBUF_STRIDED_RO | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        return 0;
    }
    const char *format = ints->buffer.format;
    if (ints->buffer.ndim == dimensions && format[0] && !format[1] &&
        strchr("bhilqBHILQ", format[0])) {
        ints->is_signed = strchr("bhilq", format[0]) != NULL;
        return 1;
    }
    PyBuffer_Release(&ints->buffer);
    return 0;
}

static inline int64_t
int_at(const Ints *ints, const char *place)
{
    switch (ints->buffer.itemsize) {
    case 8: { int64_t value; memcpy(&value, place, 8); return value; }
    case 4: {
        int32_t value;
        memcpy(&value, place, 4);
        return ints->is_signed ? (int64_t)value : (int64_t)(uint32_t)value;
    }
    case 2: {
        int16_t value;
        memcpy(&value, place, 2);
        return ints->is_signed ? (int64_t)value : (int64_t)(uint16_t)value;
    }
    default: return ints->is_signed ? (int64_t)*(const int8_t *)place
                                    : (int64_t)*(const uint8_t *)place;
    }
}

static inline int64_t
int_of(const Ints *ints, Py_ssize_t index)
{
    return int_at(ints, (const char *)ints->buffer.buf + index * ints->buffer.strides[0]);
}

/* --- token ids --------------------------------------------------------------------------- */

static PyObject *
rows_of(const Ints *ids, const Ints *counts)
{
    Py_ssize_t requests = ids->buffer.shape[0], width = ids->buffer.shape[1];
    Py_ssize_t step = ids->buffer.strides[1];
    if (counts->buffer.shape[0] != requests) {
        Py_RETURN_NONE;
    }
    for (Py_ssize_t r = 0; r < requests; r++) {
        int64_t count = int_of(counts, r);
        if (count < 0 || count > width) {
            Py_RETURN_NONE;
        }
    }
    PyObject *rows = PyList_New(requests);
    if (rows == NULL) {
        return NULL;
    }
    for (Py_ssize_t r = 0; r < requests; r++) {
        Py_ssize_t count = (Py_ssize_t)int_of(counts, r);
        PyObject *row = PyList_New(count);
        if (row == NULL) {
            Py_DECREF(rows);
            return NULL;
        }
        PyList_SET_ITEM(rows, r, row);
        const char *place = (const char *)ids->buffer.buf + r * ids->buffer.strides[0];
        for (Py_ssize_t w = 0; w < count; w++, place += step) {
            PyObject *value = PyLong_FromLongLong(int_at(ids, place));
            if (value == NULL) {
                Py_DECREF(rows);
                return NULL;
            }
            PyList_SET_ITEM(row, w, value);
        }
    }
    return rows;
}

static PyObject *
cut_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "cut_rows takes ids and counts");
        return NULL;
    }
    Ints ids, counts;
    if (!open_ints(arguments[0], 2, &ids)) {
        Py_RETURN_NONE;
    }
    PyObject *rows = Py_None;
    if (open_ints(arguments[1], 1, &counts)) {
        rows = rows_of(&ids, &counts);
        PyBuffer_Release(&counts.buffer);
    }
    else {
        Py_INCREF(rows);
    }
    PyBuffer_Release(&ids.buffer);
    return rows;
}

/* --- sampling masks ---------------------------------------------------------------------- */

typedef struct {
    Ints ids, counts, sampled;
    Py_buffer packed;
    Py_ssize_t rows_per_request;
    int64_t vocabulary;
} Masks;

/* Write the set bits of a row, ascending; give how many there were, at most `most` written. */
static int64_t
unpack_row(const uint8_t *bytes, int64_t vocabulary, int32_t *target, int64_t most)
{
    int64_t found = 0;
    for (int64_t start = 0; start < vocabulary; start += 64) {
        int64_t bits_left = vocabulary - start;
        uint64_t word = 0;
        memcpy(&word, bytes + start / 8, bits_left >= 64 ? 8 : (size_t)((bits_left + 7) / 8));
        if (bits_left < 64) {
            word &= (UINT64_C(1) << bits_left) - 1; /* the spare bits mean nothing */
        }
        while (word) {
            if (found < most) {
                target[found] = (int32_t)(start + __builtin_ctzll(word));
            }
            found++;
            word &= word - 1;
        }
    }
    return found;
}

/* Write offsets and token ids; 0 when a row's bits are not as many as its count. */
static int
write_masks(const Masks *masks, const int64_t *offsets, int32_t *tokens)
{
    Py_ssize_t width = masks->ids.buffer.shape[1], row = 0;
    for (Py_ssize_t r = 0; r < masks->sampled.buffer.shape[0]; r++) {
        int64_t kept = int_of(&masks->sampled, r);
        for (int64_t w = 0; w < kept; w++, row++) {
            Py_ssize_t source = r * masks->rows_per_request + (Py_ssize_t)w;
            int64_t number = offsets[row + 1] - offsets[row];
            int32_t *target = tokens + offsets[row];
            if (number <= width) {
                const char *listed = (const char *)masks->ids.buffer.buf +
                                     source * masks->ids.buffer.strides[0];
                memcpy(target, listed, (size_t)number * sizeof(int32_t));
                continue;
            }
            const uint8_t *bytes =
                (const uint8_t *)masks->packed.buf + source * masks->packed.strides[0];
            if (unpack_row(bytes, masks->vocabulary, target, number) != number) {
                return 0;
            }
        }
    }
    return 1;
}

static PyObject *
flat_masks(Masks *masks)
{
    Py_ssize_t requests = masks->sampled.buffer.shape[0], rows = 0;
    Py_ssize_t all_rows = masks->counts.buffer.shape[0];
    if (requests * masks->rows_per_request != all_rows ||
        masks->ids.buffer.shape[0] != all_rows || masks->packed.shape[0] != all_rows ||
        masks->packed.shape[1] * 8 < masks->vocabulary) {
        Py_RETURN_NONE;
    }
    PyObject *boundaries = PyList_New(requests + 1);
    if (boundaries == NULL) {
        return NULL;
    }
    for (Py_ssize_t r = 0; r <= requests; r++) {
        PyObject *boundary = PyLong_FromSsize_t(rows);
        if (boundary == NULL) {
            Py_DECREF(boundaries);
            return NULL;
        }
        PyList_SET_ITEM(boundaries, r, boundary);
        int64_t kept = r < requests ? int_of(&masks->sampled, r) : 0;
        if (kept < 0 || kept > masks->rows_per_request) {
            Py_DECREF(boundaries);
            Py_RETURN_NONE;
        }
        rows += (Py_ssize_t)kept;
    }
    PyObject *offsets = PyByteArray_FromStringAndSize(NULL, (rows + 1) * sizeof(int64_t));
    if (offsets == NULL) {
        Py_DECREF(boundaries);
        return NULL;
    }
    int64_t *offset = (int64_t *)PyByteArray_AS_STRING(offsets);
    int64_t total = 0;
    int is_wide = 0;
    Py_ssize_t row = 0;
    for (Py_ssize_t r = 0; r < requests; r++) {
        int64_t kept = int_of(&masks->sampled, r);
        for (int64_t w = 0; w < kept; w++) {
            int64_t number = int_of(&masks->counts, r * masks->rows_per_request + (Py_ssize_t)w);
            if (number < 0 || number > masks->vocabulary) {
                Py_DECREF(boundaries);
                Py_DECREF(offsets);
                Py_RETURN_NONE;
            }
            is_wide |= number > masks->ids.buffer.shape[1];
            offset[row++] = total;
            total += number;
        }
    }
    offset[row] = total;
    PyObject *tokens = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(total * sizeof(int32_t)));
    if (tokens == NULL) {
        Py_DECREF(boundaries);
        Py_DECREF(offsets);
        return NULL;
    }
    int32_t *target = (int32_t *)PyByteArray_AS_STRING(tokens);
    int is_right;
    if (is_wide) { /* long enough that other threads should run meanwhile */
        Py_BEGIN_ALLOW_THREADS
        is_right = write_masks(masks, offset, target);
        Py_END_ALLOW_THREADS
    }
    else {
        is_right = write_masks(masks, offset, target);
    }
    if (!is_right) {
        Py_DECREF(boundaries);
        Py_DECREF(offsets);
        Py_DECREF(tokens);
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(NNN)", tokens, offsets, boundaries);
}

static PyObject *
mask_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError,
                        "mask_rows takes token_ids, packed_mask, counts, num_sampled, "
                        "rows_per_request and vocab_size");
        return NULL;
    }
    Masks masks;
    masks.rows_per_request = PyLong_AsSsize_t(arguments[4]);
    masks.vocabulary = PyLong_AsLongLong(arguments[5]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    PyObject *result = NULL;
    if (open_ints(arguments[0], 2, &masks.ids)) {
        if (open_ints(arguments[2], 1, &masks.counts)) {
            if (open_ints(arguments[3], 1, &masks.sampled)) {
                Ints packed;
                if (open_ints(arguments[1], 2, &packed)) {
                    masks.packed = packed.buffer;
                    /* Rows are read as they lie in memory. */
                    if (masks.ids.buffer.itemsize == 4 && masks.ids.buffer.strides[1] == 4 &&
                        packed.buffer.itemsize == 1 && packed.buffer.strides[1] == 1) {
                        result = flat_masks(&masks);
                    }
                    PyBuffer_Release(&packed.buffer);
                }
                PyBuffer_Release(&masks.sampled.buffer);
            }
            PyBuffer_Release(&masks.counts.buffer);
        }
        PyBuffer_Release(&masks.ids.buffer);
    }
    if (result == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return result;
}

/* --- a step's tensors -------------------------------------------------------------------- */

static PyObject *tensor_type, *fields_of_type, *record_fields, *device_only;
static PyObject *name_is_cpu, *name_nbytes, *name_is_contiguous, *name_data_ptr;

static PyObject *
learn_types(PyObject *module, PyObject *arguments)
{
    PyObject *tensor, *known, *fields, *left_out;
    if (!PyArg_ParseTuple(arguments, "OO!OO", &tensor, &PyDict_Type, &known, &fields, &left_out)) {
        return NULL;
    }
    if (!PyType_Check(tensor)) {
        PyErr_SetString(PyExc_TypeError, "learn_types takes the tensors' type first");
        return NULL;
    }
    Py_XSETREF(tensor_type, Py_NewRef(tensor));
    Py_XSETREF(fields_of_type, Py_NewRef(known));
    Py_XSETREF(record_fields, Py_NewRef(fields));
    Py_XSETREF(device_only, Py_NewRef(left_out));
    Py_RETURN_NONE;
}

/* Whether an attribute is true; -1 with an exception. */
static int
has_true(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL) {
        return -1;
    }
    int is_true = PyObject_IsTrue(value);
    Py_DECREF(value);
    return is_true;
}

/* Give the fields of a record's type, None for any other: a new reference. */
static PyObject *
fields_of(PyObject *value)
{
    PyObject *type = (PyObject *)Py_TYPE(value);
    PyObject *names = PyDict_GetItemWithError(fields_of_type, type);
    if (names != NULL) {
        return Py_NewRef(names);
    }
    return PyErr_Occurred() ? NULL : PyObject_CallOneArg(record_fields, type);
}

static int gather_from(PyObject *value, PyObject *found);

/* Gather from one field; clears `is_on_host` unless it is a tensor there or holds none. */
static int
gather_part(PyObject *part, PyObject *found, int *is_on_host)
{
    if (part == Py_None) {
        return 0;
    }
    if (PyObject_TypeCheck(part, (PyTypeObject *)tensor_type)) {
        if (*is_on_host) {
            int is_cpu = has_true(part, name_is_cpu);
            if (is_cpu < 0) {
                return -1;
            }
            *is_on_host = is_cpu;
        }
        return PyList_Append(found, part);
    }
    if (!PyDict_Check(part)) {
        PyObject *names = fields_of(part);
        if (names == NULL) {
            return -1;
        }
        int is_record = names != Py_None && PyTuple_GET_SIZE(names) > 0;
        Py_DECREF(names);
        if (!is_record) {
            return 0;
        }
    }
    /* A record of records is walked, wherever its tensors are. */
    *is_on_host = 0;
    return gather_from(part, found);
}

static int
gather_from(PyObject *value, PyObject *found)
{
    if (PyObject_TypeCheck(value, (PyTypeObject *)tensor_type)) {
        return PyList_Append(found, value);
    }
    if (PyDict_Check(value)) {
        PyObject *part;
        Py_ssize_t position = 0;
        while (PyDict_Next(value, &position, NULL, &part)) {
            Py_INCREF(part);
            int result = gather_from(part, found);
            Py_DECREF(part);
            if (result < 0) {
                return -1;
            }
        }
        return 0;
    }
    PyObject *names = fields_of(value);
    if (names == NULL) {
        return -1;
    }
    if (names == Py_None) {
        Py_DECREF(names);
        return 0;
    }
    Py_ssize_t before = PyList_GET_SIZE(found);
    int is_on_host = 1, result = 0;
    for (Py_ssize_t i = 0; result == 0 && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        int is_left_out = PySet_Contains(device_only, name);
        if (is_left_out) {
            result = is_left_out < 0 ? -1 : 0;
            continue;
        }
        PyObject *part = PyObject_GetAttr(value, name);
        result = part == NULL ? -1 : gather_part(part, found, &is_on_host);
        Py_XDECREF(part);
    }
    Py_DECREF(names);
    if (result == 0 && is_on_host) {
        result = PyList_SetSlice(found, before, PyList_GET_SIZE(found), NULL);
    }
    return result;
}

static PyObject *
gather(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2 || !PyList_Check(arguments[1]) || tensor_type == NULL) {
        PyErr_SetString(PyExc_TypeError, "gather takes a value and a list, after learn_types()");
        return NULL;
    }
    if (gather_from(arguments[0], arguments[1]) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
lay_out(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2 || !PyList_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "lay_out takes a list of tensors and an alignment");
        return NULL;
    }
    size_t alignment = PyLong_AsSize_t(arguments[1]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t number = PyList_GET_SIZE(arguments[0]);
    PyObject *sizes = PyList_New(number), *offsets = PyList_New(number);
    size_t end = 0;
    int are_plain = 1;
    if (sizes == NULL || offsets == NULL) {
        goto failed;
    }
    for (Py_ssize_t i = 0; i < number; i++) {
        PyObject *tensor = PyList_GET_ITEM(arguments[0], i);
        PyObject *size = PyObject_GetAttr(tensor, name_nbytes);
        if (size == NULL) {
            goto failed;
        }
        PyList_SET_ITEM(sizes, i, size);
        size_t bytes = PyLong_AsSize_t(size);
        PyObject *offset = PyLong_FromSize_t(end);
        if (offset == NULL || (bytes == (size_t)-1 && PyErr_Occurred())) {
            Py_XDECREF(offset);
            goto failed;
        }
        PyList_SET_ITEM(offsets, i, offset);
        end += (bytes + alignment - 1) & ~(alignment - 1);
        if (are_plain) {
            PyObject *is_contiguous = PyObject_CallMethodNoArgs(tensor, name_is_contiguous);
            int is_cpu = is_contiguous == NULL ? -1 : has_true(tensor, name_is_cpu);
            if (is_cpu < 0) {
                Py_XDECREF(is_contiguous);
                goto failed;
            }
            are_plain = bytes > 0 && is_contiguous == Py_True && !is_cpu;
            Py_DECREF(is_contiguous);
        }
    }
    return Py_BuildValue("(NNnO)", sizes, offsets, (Py_ssize_t)end,
                         are_plain ? Py_True : Py_False);
failed:
    Py_XDECREF(sizes);
    Py_XDECREF(offsets);
    return NULL;
}

/* --- the driver's calls of one step ------------------------------------------------------ */

typedef int (*RecordEvent)(void *event, void *stream);
typedef int (*WaitEvent)(void *stream, void *event, unsigned flags);
typedef int (*CopyToHost)(void *target, uint64_t source, size_t bytes, void *stream);
typedef int (*CopyBatch)(uint64_t *targets, uint64_t *sources, size_t *sizes, size_t count,
                         void *attributes, size_t *starts, size_t number, void *stream);

typedef struct {
    PyObject_HEAD
    RecordEvent record;
    WaitEvent wait;
    CopyToHost copy_one;
    CopyBatch copy_batch;
    void *attributes;
    Py_ssize_t few;
    void *main, *copy, *marker;
} Lane;

/* Copies of a step that need no memory from the heap: sixteen prompts' logprobs have 50. */
#define STEP_COPIES 64

enum { CALL_RECORD_MAIN, CALL_WAIT, CALL_COPY, CALL_RECORD };

static int
lane_init(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"record", "wait", "copy_one", "copy_batch", "attributes",
                            "few", "main", "copy", "marker", NULL};
    unsigned long long record, wait, one, batch, attributes, main, copy, marker;
    Lane *lane = (Lane *)self;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "KKKKKnKKK", names, &record, &wait, &one,
                                     &batch, &attributes, &lane->few, &main, &copy, &marker)) {
        return -1;
    }
    lane->record = (RecordEvent)(uintptr_t)record;
    lane->wait = (WaitEvent)(uintptr_t)wait;
    lane->copy_one = (CopyToHost)(uintptr_t)one;
    lane->copy_batch = (CopyBatch)(uintptr_t)batch;
    lane->attributes = (void *)(uintptr_t)attributes;
    lane->main = (void *)(uintptr_t)main;
    lane->copy = (void *)(uintptr_t)copy;
    lane->marker = (void *)(uintptr_t)marker;
    return 0;
}

/* Make the step's calls; give the driver's result, and in `call` the one that gave it. */
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

static PyObject *
lane_call(PyObject *self, PyObject *const *arguments, Py_ssize_t number)
{
    if (number != 5 || !PyList_Check(arguments[0]) || !PyList_Check(arguments[1]) ||
        !PyList_Check(arguments[2]) ||
        PyList_GET_SIZE(arguments[0]) != PyList_GET_SIZE(arguments[1]) ||
        PyList_GET_SIZE(arguments[0]) != PyList_GET_SIZE(arguments[2])) {
        PyErr_SetString(PyExc_TypeError,
                        "submit takes equally long lists of sources, sizes and offsets, a base "
                        "address and an event's handle");
        return NULL;
    }
    uint64_t base = PyLong_AsUnsignedLongLong(arguments[3]);
    void *event = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(arguments[4]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(arguments[0]);
    uint64_t own[3 * STEP_COPIES], *targets = own;
    if (count > STEP_COPIES) {
        targets = PyMem_New(uint64_t, 3 * count);
        if (targets == NULL) {
            return PyErr_NoMemory();
        }
    }
    uint64_t *sources = targets + count;
    size_t *sizes = (size_t *)(sources + count);
    PyObject *outcome = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *address =
            PyObject_CallMethodNoArgs(PyList_GET_ITEM(arguments[0], i), name_data_ptr);
        if (address == NULL) {
            goto done;
        }
        sources[i] = PyLong_AsUnsignedLongLong(address);
        Py_DECREF(address);
        sizes[i] = PyLong_AsSize_t(PyList_GET_ITEM(arguments[1], i));
        targets[i] = base + PyLong_AsUnsignedLongLong(PyList_GET_ITEM(arguments[2], i));
        if (PyErr_Occurred()) {
            goto done;
        }
    }
    int result, call = 0;
    /* A full queue makes the driver wait for the device: not with the interpreter's lock. */
    Py_BEGIN_ALLOW_THREADS
    result = make_calls((const Lane *)self, targets, sources, sizes, count, event, &call);
    Py_END_ALLOW_THREADS
    outcome = result == 0 ? Py_NewRef(Py_None) : Py_BuildValue("(ii)", result, call);
done:
    if (targets != own) {
        PyMem_Free(targets);
    }
    return outcome;
}

static PyMethodDef lane_methods[] = {
    {"submit", (PyCFunction)(void (*)(void))lane_call, METH_FASTCALL,
     "Make a step's driver calls; give None, or the driver's result and the call's number."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot lane_slots[] = {
    {Py_tp_doc, "The driver's functions and handles that a step's copies need."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, lane_init},
    {Py_tp_methods, lane_methods},
    {0, NULL},
};

static PyType_Spec lane_spec = {
    .name = "asyncout._hot.Lane",
    .basicsize = sizeof(Lane),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = lane_slots,
};

/* --- the module -------------------------------------------------------------------------- */

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static PyMethodDef methods[] = {
    {"cut_rows", FAST(cut_rows), "Make lists of token ids, each cut to its count."},
    {"mask_rows", FAST(mask_rows), "Make sampling masks flat."},
    {"learn_types", learn_types, METH_VARARGS, "Tell gather what a tensor and a record are."},
    {"gather", FAST(gather), "Append every tensor of a value that has to be copied."},
    {"lay_out", FAST(lay_out), "Give sizes and offsets of tensors in one block."},
    {NULL, NULL, 0, NULL},
};

static int
add_names(PyObject *module)
{
    name_is_cpu = PyUnicode_InternFromString("is_cpu");
    name_nbytes = PyUnicode_InternFromString("nbytes");
    name_is_contiguous = PyUnicode_InternFromString("is_contiguous");
    name_data_ptr = PyUnicode_InternFromString("data_ptr");
    if (!name_is_cpu || !name_nbytes || !name_is_contiguous || !name_data_ptr) {
        return -1;
    }
    PyObject *lane = PyType_FromSpec(&lane_spec);
    if (lane == NULL || PyModule_AddObject(module, "Lane", lane) < 0) {
        Py_XDECREF(lane);
        return -1;
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_names},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "asyncout._hot", .m_size = 0, .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__hot(void)
{
    return PyModuleDef_Init(&definition);
}
