/* Token ids and sampling masks: arrived arrays become what an engine reads. */
#include "hot.h"

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

PyObject *
new_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "new_rows takes numbers of requests and of columns");
        return NULL;
    }
    Py_ssize_t requests = PyLong_AsSsize_t(arguments[0]);
    Py_ssize_t width = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(arguments[1]);
    PyObject *rows = PyErr_Occurred() ? NULL : PyList_New(requests);
    for (Py_ssize_t r = 0; rows != NULL && r < requests; r++) {
        PyObject *row = PyList_New(width);
        if (row == NULL) {
            Py_CLEAR(rows);
            break;
        }
        for (Py_ssize_t w = 0; w < width; w++) {
            PyList_SET_ITEM(row, w, Py_NewRef(Py_None));
        }
        PyList_SET_ITEM(rows, r, row);
    }
    return rows;
}

/* Put ids into the rows' items and cut each to its count; 0, or -1 with an exception. */
static int
fill(PyObject *rows, const Ints *ids, const Ints *counts)
{
    Py_ssize_t requests = ids->buffer.shape[0], width = ids->buffer.shape[1];
    Py_ssize_t step = ids->buffer.strides[1];
    for (Py_ssize_t r = 0; r < requests; r++) {
        PyObject *row = PyList_GET_ITEM(rows, r);
        Py_ssize_t count = (Py_ssize_t)int_of(counts, r);
        const char *place = (const char *)ids->buffer.buf + r * ids->buffer.strides[0];
        for (Py_ssize_t w = 0; w < count; w++, place += step) {
            PyObject *value = PyLong_FromLongLong(int_at(ids, place));
            if (value == NULL || PyList_SetItem(row, w, value) < 0) {
                return -1;
            }
        }
        if (count < width && PyList_SetSlice(row, count, width, NULL) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Whether the counts are as many as the rows, and each row can hold its count. */
static int
counts_fit(const Ints *ids, const Ints *counts)
{
    Py_ssize_t requests = ids->buffer.shape[0], width = ids->buffer.shape[1];
    if (counts->buffer.shape[0] != requests) {
        return 0;
    }
    for (Py_ssize_t r = 0; r < requests; r++) {
        int64_t count = int_of(counts, r);
        if (count < 0 || count > width) {
            return 0;
        }
    }
    return 1;
}

/* Whether `rows` is what new_rows() gives for these ids, untouched by others. */
static int
rows_fit(PyObject *rows, const Ints *ids)
{
    if (!PyList_Check(rows) || PyList_GET_SIZE(rows) != ids->buffer.shape[0]) {
        return 0;
    }
    for (Py_ssize_t r = 0; r < PyList_GET_SIZE(rows); r++) {
        PyObject *row = PyList_GET_ITEM(rows, r);
        if (!PyList_Check(row) || PyList_GET_SIZE(row) != ids->buffer.shape[1]) {
            return 0;
        }
    }
    return 1;
}

PyObject *
fill_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "fill_rows takes rows, ids and counts");
        return NULL;
    }
    Ints ids, counts;
    if (!open_ints(arguments[1], 2, &ids)) {
        Py_RETURN_FALSE;
    }
    int outcome = 0;
    if (open_ints(arguments[2], 1, &counts)) {
        outcome = counts_fit(&ids, &counts) && rows_fit(arguments[0], &ids);
        if (outcome) {
            outcome = fill(arguments[0], &ids, &counts) < 0 ? -1 : 1;
        }
        PyBuffer_Release(&counts.buffer);
    }
    PyBuffer_Release(&ids.buffer);
    return outcome < 0 ? NULL : PyBool_FromLong(outcome);
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

PyObject *
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
