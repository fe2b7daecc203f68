/* A step's tensors: found in its records, looked at, and compared in length. */
#include "hot.h"

static PyObject *tensor_type, *fields_of_type, *record_fields, *device_only;
static PyObject *name_is_cpu, *name_is_neg;

const DLExchange *exchange;

/* Find torch's functions where it has them (torch 2.11 does). */
static void
find_exchange(void)
{
    exchange = NULL;
    /* DLPack's names of the attribute and of what is in it. */
    PyObject *capsule = PyObject_GetAttrString(tensor_type, "__dlpack_c_exchange_api__");
    if (capsule != NULL) {
        const DLExchange *found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        if (found != NULL && found->version.major == DLPACK_MAJOR && found->look != NULL &&
            found->object_from_managed != NULL) {
            exchange = found; /* it lives as long as the process */
        }
        Py_DECREF(capsule);
    }
    PyErr_Clear();
}

int
look_at(PyObject *object, DLTensor *tensor)
{
    /* A subclass may be anything. */
    if (exchange == NULL || (PyObject *)Py_TYPE(object) != tensor_type) {
        return 0;
    }
    if (exchange->look(object, tensor) != 0) {
        PyErr_Clear();
        return 0;
    }
    return 1;
}

size_t
bytes_of(const DLTensor *tensor)
{
    size_t bytes = (size_t)tensor->type.bits * tensor->type.lanes / 8;
    for (int32_t d = 0; d < tensor->dimensions; d++) {
        bytes *= (size_t)tensor->shape[d];
    }
    return bytes;
}

int
is_contiguous(const DLTensor *tensor)
{
    int64_t step = 1;
    if (tensor->strides == NULL) {
        return 1;
    }
    for (int32_t d = tensor->dimensions - 1; d >= 0; d--) {
        if (tensor->shape[d] != 1 && tensor->strides[d] != step) {
            return 0;
        }
        step *= tensor->shape[d];
    }
    return 1;
}

int
holds_its_values(PyObject *object, const DLTensor *tensor)
{
    if (tensor->type.code == DL_COMPLEX) {
        return 0;
    }
    uint64_t address = (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
    uint64_t pair = 2 * (uint64_t)tensor->type.bits / 8;
    if (tensor->type.code != DL_FLOAT || pair == 0 || address % pair == 0) {
        /* Only an imaginary part is negated lazily (no public function negates a whole tensor so):
         * a float that lies behind its real part. To ask torch costs more than the whole look. */
        return 1;
    }
    PyObject *is_neg = PyObject_CallMethodNoArgs(object, name_is_neg);
    if (is_neg == NULL) {
        PyErr_Clear();
    }
    Py_XDECREF(is_neg);
    return is_neg == Py_False;
}

PyObject *
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
    find_exchange();
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

static int
is_on_cpu(PyObject *tensor)
{
    DLTensor looked;
    return look_at(tensor, &looked) ? looked.device_type == DL_CPU : has_true(tensor, name_is_cpu);
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

/* Gather from one field; clears `is_on_host` unless it is a tensor there or holds none. */
static int
gather_part(PyObject *part, PyObject *found, int *is_on_host)
{
    if (part == Py_None) {
        return 0;
    }
    if (PyObject_TypeCheck(part, (PyTypeObject *)tensor_type)) {
        if (*is_on_host) {
            int is_cpu = is_on_cpu(part);
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

/* Raise what Python's loop over a dict raises when walking its parts changed it; 0 or -1. */
static int
check_size(PyObject *dict, Py_ssize_t size)
{
    if (PyDict_Size(dict) == size) {
        return 0;
    }
    PyErr_SetString(PyExc_RuntimeError, "dictionary changed size during iteration");
    return -1;
}

static int
gather_from_dict(PyObject *value, PyObject *found)
{
    PyObject *part;
    Py_ssize_t position = 0, size = PyDict_Size(value);
    while (PyDict_Next(value, &position, NULL, &part)) {
        Py_INCREF(part);
        int result = gather_from(part, found);
        Py_DECREF(part);
        if (result < 0 || check_size(value, size) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
gather_from_record(PyObject *value, PyObject *found)
{
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

/* Said of a value that holds itself, as Python says it of the twins. */
#define WHERE " while the tensors of a value were looked for"

int
gather_from(PyObject *value, PyObject *found)
{
    if (PyObject_TypeCheck(value, (PyTypeObject *)tensor_type)) {
        return PyList_Append(found, value);
    }
    if (Py_EnterRecursiveCall(WHERE)) {
        return -1;
    }
    int result = PyDict_Check(value) ? gather_from_dict(value, found)
                                     : gather_from_record(value, found);
    Py_LeaveRecursiveCall();
    return result;
}

PyObject *
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

/* Whether a record holds tensors, no record, and all of the tensors are on the host. */
static int
is_left_alone(PyObject *record, PyObject *names)
{
    int holds_tensor = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        int is_left_out = PySet_Contains(device_only, PyTuple_GET_ITEM(names, i));
        if (is_left_out > 0) {
            continue;
        }
        PyObject *part =
            is_left_out < 0 ? NULL : PyObject_GetAttr(record, PyTuple_GET_ITEM(names, i));
        if (part == NULL) {
            return -1;
        }
        int is_kept = 1;
        if (PyObject_TypeCheck(part, (PyTypeObject *)tensor_type)) {
            is_kept = is_on_cpu(part);
            holds_tensor = 1;
        }
        else if (PyDict_Check(part)) {
            is_kept = 0;
        }
        else if (part != Py_None) {
            PyObject *fields = fields_of(part);
            is_kept = fields == NULL ? -1 : fields == Py_None || PyTuple_GET_SIZE(fields) == 0;
            Py_XDECREF(fields);
        }
        Py_DECREF(part);
        if (is_kept <= 0) {
            return is_kept;
        }
    }
    return holds_tensor;
}

static PyObject *
next_of(PyObject *replacements)
{
    PyObject *item = PyIter_Next(replacements);
    if (item == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError, "fewer replacements than tensors were gathered");
    }
    return item;
}

static PyObject *twin_of(PyObject *value, PyObject *replacements);

static PyObject *
twin_of_dict(PyObject *value, PyObject *replacements)
{
    PyObject *twin = PyDict_New(), *key, *part;
    Py_ssize_t position = 0, size = PyDict_Size(value);
    while (twin != NULL && PyDict_Next(value, &position, &key, &part)) {
        /* Making a twin runs Python, and the dict is the caller's: both may go meanwhile. */
        Py_INCREF(key);
        Py_INCREF(part);
        PyObject *other = twin_of(part, replacements);
        if (other == NULL || PyDict_SetItem(twin, key, other) < 0 || check_size(value, size) < 0) {
            Py_CLEAR(twin);
        }
        Py_XDECREF(other);
        Py_DECREF(part);
        Py_DECREF(key);
    }
    return twin;
}

static PyObject *
twin_of_record(PyObject *value, PyObject *replacements)
{
    PyObject *names = fields_of(value);
    if (names == NULL) {
        return NULL;
    }
    int is_itself = names == Py_None ? 1 : is_left_alone(value, names);
    if (is_itself) {
        Py_DECREF(names);
        return is_itself < 0 ? NULL : Py_NewRef(value);
    }
    PyObject *parts = PyTuple_New(PyTuple_GET_SIZE(names));
    for (Py_ssize_t i = 0; parts != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i), *other = NULL;
        int is_left_out = PySet_Contains(device_only, name);
        PyObject *part = is_left_out < 0 ? NULL : PyObject_GetAttr(value, name);
        if (part != NULL) {
            other = is_left_out || part == Py_None ? Py_NewRef(Py_None)
                                                   : twin_of(part, replacements);
            Py_DECREF(part);
        }
        if (other == NULL) {
            Py_CLEAR(parts);
            break;
        }
        PyTuple_SET_ITEM(parts, i, other);
    }
    Py_DECREF(names);
    PyObject *twin = parts == NULL ? NULL : PyObject_CallObject((PyObject *)Py_TYPE(value), parts);
    Py_XDECREF(parts);
    return twin;
}

static PyObject *
twin_of(PyObject *value, PyObject *replacements)
{
    if (PyObject_TypeCheck(value, (PyTypeObject *)tensor_type)) {
        return next_of(replacements);
    }
    if (Py_EnterRecursiveCall(WHERE)) {
        return NULL;
    }
    PyObject *twin = PyDict_Check(value) ? twin_of_dict(value, replacements)
                                         : twin_of_record(value, replacements);
    Py_LeaveRecursiveCall();
    return twin;
}

PyObject *
rebuild(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2 || !PyIter_Check(arguments[1]) || tensor_type == NULL) {
        PyErr_SetString(PyExc_TypeError,
                        "rebuild takes a value and an iterator, after learn_types()");
        return NULL;
    }
    return twin_of(arguments[0], arguments[1]);
}

/* --- lengths ----------------------------------------------------------------------------- */

int
has_rows(PyObject *object, int32_t dimensions, int64_t rows)
{
    DLTensor tensor;
    return look_at(object, &tensor) && tensor.dimensions == dimensions && tensor.shape[0] == rows;
}

int
logprobs_fit(PyObject *logprobs)
{
    if (!PyTuple_Check(logprobs) || PyTuple_GET_SIZE(logprobs) < 3) {
        return 0;
    }
    DLTensor ids, values;
    if (!look_at(PyTuple_GET_ITEM(logprobs, 0), &ids) ||
        !look_at(PyTuple_GET_ITEM(logprobs, 1), &values) || ids.dimensions != 2 ||
        values.dimensions != 2 || ids.shape[0] != values.shape[0] ||
        ids.shape[1] != values.shape[1] ||
        !has_rows(PyTuple_GET_ITEM(logprobs, 2), 1, ids.shape[0])) {
        return 0;
    }
    for (Py_ssize_t i = 3; i < PyTuple_GET_SIZE(logprobs); i++) {
        if (PyTuple_GET_ITEM(logprobs, i) != Py_None) {
            return 0; /* boundaries */
        }
    }
    return 1;
}

PyObject *
lengths_agree(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "lengths_agree takes a number of requests, token ids, "
                                         "counts, NaN counts and logprobs");
        return NULL;
    }
    Py_ssize_t requests = PyLong_AsSsize_t(arguments[0]);
    if (requests < 0 && PyErr_Occurred()) {
        return NULL;
    }
    int agree = has_rows(arguments[1], 2, requests) && has_rows(arguments[2], 1, requests) &&
                (arguments[3] == Py_None || has_rows(arguments[3], 1, requests)) &&
                (arguments[4] == Py_None || logprobs_fit(arguments[4]));
    return PyBool_FromLong(agree);
}

int
add_tensors(PyObject *module)
{
    name_is_cpu = PyUnicode_InternFromString("is_cpu");
    name_is_neg = PyUnicode_InternFromString("is_neg");
    return name_is_cpu == NULL || name_is_neg == NULL ? -1 : 0;
}
