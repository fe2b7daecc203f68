/* What the compiled loops share. Python's headers are the only ones that they need: the
 * driver is called through addresses that cuda_driver.py finds, and torch's tensors are
 * read through the C functions of DLPack, whose structures stand below.
 *
 * Each function has a twin in Python that gives the same and explains what is wrong: one
 * that meets anything unusual says so (None, or a fallback), and the twin takes over.
 */
#ifndef ASYNCOUT_HOT_H
#define ASYNCOUT_HOT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>

/* A method's function and flags: its arguments come as an array, which costs least. */
#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

/* --- DLPack 1.x: the part of its binary interface that is used here ---------------------- */

#define DLPACK_MAJOR 1

enum { DL_CPU = 1 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_COMPLEX = 5, DL_BOOL = 6 };

typedef struct {
    uint32_t major, minor;
} DLVersion;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLType;

typedef struct {
    void *data;
    int32_t device_type, device_index;
    int32_t dimensions;
    DLType type;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManaged {
    DLVersion version;
    void *context;
    void (*deleter)(struct DLManaged *self);
    uint64_t flags;
    DLTensor tensor;
} DLManaged;

/* Its functions give 0, or -1 with an exception. They do not wait for any stream. */
typedef struct {
    DLVersion version;
    void *previous;
    void *allocator;
    void *managed_from_object;
    int (*object_from_managed)(DLManaged *managed, void **object);
    int (*look)(void *object, DLTensor *tensor);
    int (*current_stream)(int32_t device_type, int32_t device_index, void **stream);
} DLExchange;

/* --- tensors.c --------------------------------------------------------------------------- */

/* Torch's functions, NULL where this torch has none, or of another major version. */
extern const DLExchange *exchange;

/* Look at a plain torch tensor: 1, or 0 where that cannot be done this way. */
int look_at(PyObject *object, DLTensor *tensor);

/* Bytes of a tensor's elements; 0 for a dtype of less than a byte. */
size_t bytes_of(const DLTensor *tensor);

int is_contiguous(const DLTensor *tensor);

/* Whether a tensor's memory holds its values: 0 where torch may still have to conjugate or
 * negate them, which looking does not tell. */
int holds_its_values(PyObject *object, const DLTensor *tensor);

/* Whether an object is a plain tensor of some dimensions whose first one is so long. */
int has_rows(PyObject *object, int32_t dimensions, int64_t rows);

/* Whether logprobs' three tensors fit each other, and nothing else is there to be checked. */
int logprobs_fit(PyObject *logprobs);

/* Append every tensor of a value that has to be copied to a list; -1 with an exception. */
int gather_from(PyObject *value, PyObject *found);

int add_tensors(PyObject *module);
PyObject *learn_types(PyObject *module, PyObject *arguments);
PyObject *gather(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *rebuild(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *lengths_agree(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

/* --- rows.c ------------------------------------------------------------------------------ */

PyObject *new_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *fill_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *mask_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

/* --- driver.c ---------------------------------------------------------------------------- */

/* A step's driver calls on one pair of streams. */
typedef struct Lane Lane;

/* Whether a tensor is on the device whose memory a lane copies. */
int is_device_of(const Lane *lane, const DLTensor *tensor);

/* Whether the current stream is being captured into a graph, or that is not to be known. */
int may_be_capturing(const Lane *lane);
int is_lane(PyObject *object);

/* Read an event's handle; -1 with an exception. */
int handle_of(PyObject *event, uint64_t *handle);

/* Enqueue copies; `event` is 0 for none. -1 with an exception when a call fails. */
int submit(Lane *lane, uint64_t *targets, uint64_t *sources, size_t *sizes, Py_ssize_t count,
           uint64_t event);

int add_driver(PyObject *module);

/* --- landing.c --------------------------------------------------------------------------- */

/* Lay a list's tensors out and give their landing, without its lease, and the bytes that it
 * needs. NULL without an exception where one of them is not plain. */
PyObject *lay_out(PyObject *lane, PyObject *sources, size_t *bytes);

/* Lend a block that nobody has. */
PyObject *new_lease(PyObject *block);

/* Give a landing its lease, of which it takes the reference. -1 with an exception where it is
 * none; also for NULL, whose exception is there already. */
int take_lease(PyObject *landing, PyObject *lease);

/* Enqueue a landing's copies, and an event behind them unless it is NULL. */
int enqueue_landing(PyObject *landing, PyObject *event);

int add_landing(PyObject *module);
PyObject *land(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

/* --- step.c ------------------------------------------------------------------------------ */

int add_step(PyObject *module);

#endif
