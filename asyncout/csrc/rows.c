/* Token ids and sampling masks: arrived arrays become what an engine reads. */
#include "hot.h"

#include <string.h>

/* --- integers of a buffer, whatever their width ------------------------------------------ */

typedef struct {
    Py_buffer buffer;
    int is_signed;
} Ints;

/* Integers that an int64_t holds, by the buffer protocol's letters. */
#define SIGNED "bhilq"
#define UNSIGNED "BHI"

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
        strchr(SIGNED UNSIGNED, format[0])) {
        ints->is_signed = strchr(SIGNED, format[0]) != NULL;
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

/* Put ids into the rows' items and cut each to its count: 1, 0 at a count that no row holds, or -1
 * with an exception. Each count is read once: whoever else has the array may write to it. */
static int
fill(PyObject *rows, const Ints *ids, const Ints *counts)
{
    Py_ssize_t requests = ids->buffer.shape[0], width = ids->buffer.shape[1];
    Py_ssize_t step = ids->buffer.strides[1];
    for (Py_ssize_t r = 0; r < requests; r++) {
        PyObject *row = PyList_GET_ITEM(rows, r);
        int64_t count = int_of(counts, r);
        if (count < 0 || count > width) {
            return 0;
        }
        const char *place = (const char *)ids->buffer.buf + r * ids->buffer.strides[0];
        for (Py_ssize_t w = 0; w < count; w++, place += step) {
            PyObject *value = PyLong_FromLongLong(int_at(ids, place));
            if (value == NULL || PyList_SetItem(row, w, value) < 0) {
                return -1;
            }
        }
        if (count < width && PyList_SetSlice(row, (Py_ssize_t)count, width, NULL) < 0) {
            return -1;
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
        if (counts.buffer.shape[0] == ids.buffer.shape[0] && rows_fit(arguments[0], &ids)) {
            outcome = fill(arguments[0], &ids, &counts);
        }
        PyBuffer_Release(&counts.buffer);
    }
    PyBuffer_Release(&ids.buffer);
    return outcome < 0 ? NULL : PyBool_FromLong(outcome);
}

/* --- sampling masks ---------------------------------------------------------------------- */

/* Bits are read a word at a time, lowest byte first, as the masks have them. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the compiled loops read masks in words of a little-endian machine; others use Python's"
#endif
#define WORD_BITS 64

typedef struct {
    Ints ids, packed, counts, sampled;
    Py_ssize_t rows_per_request;
    int64_t vocabulary;
} Masks;

/* Whether the shapes fit each other, and rows can be read as they lie in memory. */
static int
masks_fit(const Masks *masks)
{
    const Py_buffer *ids = &masks->ids.buffer, *packed = &masks->packed.buffer;
    Py_ssize_t rows;
    if (__builtin_mul_overflow(masks->sampled.buffer.shape[0], masks->rows_per_request, &rows)) {
        return 0;
    }
    return masks->counts.buffer.shape[0] == rows && ids->shape[0] == rows &&
           packed->shape[0] == rows && packed->shape[1] * 8 >= masks->vocabulary &&
           ids->itemsize == sizeof(int32_t) && ids->strides[1] == sizeof(int32_t) &&
           packed->itemsize == 1 && packed->strides[1] == 1;
}

/* Find where each request's rows begin among those that count; 0 at a number that is out of range.
 *
 * The only place that reads the numbers of sampled tokens, each once: whoever else has the array
 * may write to it, and what follows relies on them. */
static int
find_starts(const Masks *masks, Py_ssize_t *starts)
{
    starts[0] = 0;
    for (Py_ssize_t r = 0; r < masks->sampled.buffer.shape[0]; r++) {
        int64_t kept = int_of(&masks->sampled, r);
        if (kept < 0 || kept > masks->rows_per_request) {
            return 0;
        }
        starts[r + 1] = starts[r] + (Py_ssize_t)kept;
    }
    return 1;
}

/* Find where each row's tokens begin; 0 at a count that is out of range. Tells whether a row is
 * longer than its list. Counts too are read here only. */
static int
find_offsets(const Masks *masks, const Py_ssize_t *starts, int64_t *offsets, int *is_wide)
{
    *is_wide = 0;
    offsets[0] = 0;
    for (Py_ssize_t r = 0; r < masks->sampled.buffer.shape[0]; r++) {
        Py_ssize_t source = r * masks->rows_per_request;
        for (Py_ssize_t row = starts[r]; row < starts[r + 1]; row++, source++) {
            int64_t number = int_of(&masks->counts, source);
            if (number < 0 || number > masks->vocabulary) {
                return 0;
            }
            *is_wide |= number > masks->ids.buffer.shape[1];
            offsets[row + 1] = offsets[row] + number;
        }
    }
    return 1;
}

/* Write the set bits of a word, the lowest of which is token `start`; give how many are found then,
 * of which at most `most` are written. */
static inline int64_t
unpack_word(uint64_t word, int64_t start, int32_t *target, int64_t found, int64_t most)
{
    for (; word; word &= word - 1, found++) {
        if (found < most) {
            target[found] = (int32_t)(start + __builtin_ctzll(word));
        }
    }
    return found;
}

/* Write the set bits of a row, ascending; give how many there were, at most `most` written. */
static int64_t
unpack_row(const uint8_t *bytes, int64_t vocabulary, int32_t *target, int64_t most)
{
    int64_t found = 0, start = 0;
    uint64_t word = 0;
    for (; start + WORD_BITS <= vocabulary; start += WORD_BITS) {
        memcpy(&word, bytes + start / 8, sizeof(word));
        found = unpack_word(word, start, target, found, most);
    }
    int64_t bits_left = vocabulary - start;
    if (bits_left > 0) {
        word = 0;
        memcpy(&word, bytes + start / 8, (size_t)((bits_left + 7) / 8));
        word &= (UINT64_C(1) << bits_left) - 1; /* the spare bits mean nothing */
        found = unpack_word(word, start, target, found, most);
    }
    return found;
}

/* Write token ids; 0 when a row's bits are not as many as its count. Needs no lock. */
static int
write_tokens(const Masks *masks, const Py_ssize_t *starts, const int64_t *offsets, int32_t *tokens)
{
    const Py_buffer *ids = &masks->ids.buffer, *packed = &masks->packed.buffer;
    for (Py_ssize_t r = 0; r < masks->sampled.buffer.shape[0]; r++) {
        Py_ssize_t source = r * masks->rows_per_request;
        for (Py_ssize_t row = starts[r]; row < starts[r + 1]; row++, source++) {
            int64_t number = offsets[row + 1] - offsets[row];
            int32_t *target = tokens + offsets[row];
            if (number <= ids->shape[1]) {
                memcpy(target, (const char *)ids->buf + source * ids->strides[0],
                       (size_t)number * sizeof(int32_t));
                continue;
            }
            const uint8_t *bytes = (const uint8_t *)packed->buf + source * packed->strides[0];
            if (unpack_row(bytes, masks->vocabulary, target, number) != number) {
                return 0;
            }
        }
    }
    return 1;
}

static PyObject *
list_of(const Py_ssize_t *numbers, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *number = PyLong_FromSsize_t(numbers[i]);
        if (number == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, number);
    }
    return list;
}

/* Give token ids, offsets and boundaries; NULL without an exception for the twin in Python. */
static PyObject *
flat_masks(const Masks *masks)
{
    if (!masks_fit(masks)) {
        return NULL;
    }
    Py_ssize_t requests = masks->sampled.buffer.shape[0];
    PyObject *offsets = NULL, *tokens = NULL, *result = NULL;
    Py_ssize_t *starts = PyMem_New(Py_ssize_t, (size_t)requests + 1);
    if (starts == NULL) {
        return PyErr_NoMemory();
    }
    if (!find_starts(masks, starts)) {
        goto done;
    }
    Py_ssize_t rows = starts[requests];
    offsets = PyByteArray_FromStringAndSize(NULL, (rows + 1) * (Py_ssize_t)sizeof(int64_t));
    if (offsets == NULL) {
        goto done;
    }
    int64_t *offset = (int64_t *)PyByteArray_AS_STRING(offsets);
    int is_wide, is_right;
    if (!find_offsets(masks, starts, offset, &is_wide)) {
        goto done;
    }
    tokens = PyByteArray_FromStringAndSize(NULL, offset[rows] * (Py_ssize_t)sizeof(int32_t));
    if (tokens == NULL) {
        goto done;
    }
    int32_t *token = (int32_t *)PyByteArray_AS_STRING(tokens);
    if (is_wide) { /* long enough that other threads should run meanwhile */
        Py_BEGIN_ALLOW_THREADS
        is_right = write_tokens(masks, starts, offset, token);
        Py_END_ALLOW_THREADS
    }
    else {
        is_right = write_tokens(masks, starts, offset, token);
    }
    PyObject *boundaries = is_right ? list_of(starts, requests + 1) : NULL;
    if (boundaries != NULL) {
        result = PyTuple_Pack(3, tokens, offsets, boundaries);
        Py_DECREF(boundaries);
    }
done:
    PyMem_Free(starts);
    Py_XDECREF(offsets);
    Py_XDECREF(tokens);
    return result;
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
    masks.rows_per_request = PyNumber_AsSsize_t(arguments[4], PyExc_OverflowError);
    masks.vocabulary = PyErr_Occurred() ? 0 : PyNumber_AsSsize_t(arguments[5], PyExc_OverflowError);
    if (PyErr_Occurred()) {
        PyErr_Clear(); /* no number, or a huge one: the twin says what is wrong with it */
        Py_RETURN_NONE;
    }
    Ints *const all[] = {&masks.ids, &masks.packed, &masks.counts, &masks.sampled};
    const int dimensions[] = {2, 2, 1, 1};
    size_t open = 0;
    while (open < Py_ARRAY_LENGTH(all) && open_ints(arguments[open], dimensions[open], all[open])) {
        open++;
    }
    PyObject *result = open == Py_ARRAY_LENGTH(all) ? flat_masks(&masks) : NULL;
    while (open > 0) {
        PyBuffer_Release(&all[--open]->buffer);
    }
    if (result == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return result;
}
