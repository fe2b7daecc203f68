/* The module asyncout._hot: what a step costs the host in Python it pays in cold code. */
#include "hot.h"

static PyMethodDef methods[] = {
    {"new_rows", FAST(new_rows), "Make rows for token ids that have not arrived."},
    {"fill_rows", FAST(fill_rows), "Put token ids into rows, each cut to its count."},
    {"mask_rows", FAST(mask_rows), "Make sampling masks flat."},
    {"learn_types", learn_types, METH_VARARGS, "Tell gather what a tensor and a record are."},
    {"gather", FAST(gather), "Append every tensor of a value that has to be copied."},
    {"rebuild", FAST(rebuild), "Make a twin with each gathered tensor replaced."},
    {"lengths_agree", FAST(lengths_agree), "Whether a step's parts agree in length, if plain."},
    {"land", FAST(land), "Make room for tensors in a leased block."},
    {NULL, NULL, 0, NULL},
};

static int
add_all(PyObject *module)
{
    return add_tensors(module) < 0 || add_driver(module) < 0 || add_landing(module) < 0 ||
                   add_step(module) < 0
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_all},
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
