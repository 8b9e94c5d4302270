/* Stands in for the CUDA driver's library (libcuda.so.1) in a process that only compiles: it says which GPU to compile
   for, and takes what was compiled. Nothing can run on it. compile_worker.py loads it, where there is no driver. */

enum { SUCCESS = 0, NOT_FOUND = 500, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76, DYNAMIC_SHARED_SIZE = 8 };

/* set before a compile: the compute capability to compile for */
int mgpu_fix_major, mgpu_fix_minor;
/* read after it: whether machine code was made, and how much shared memory it is launched with, in bytes */
int mgpu_fix_loaded, mgpu_fix_shared;

int cuInit(unsigned flags) { return SUCCESS; }
int cuCtxGetCurrent(void **context) { *context = (void *)1; return SUCCESS; }
int cuCtxGetDevice(int *device) { *device = 0; return SUCCESS; }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == CAPABILITY_MAJOR ? mgpu_fix_major : attribute == CAPABILITY_MINOR ? mgpu_fix_minor : 0;
  return SUCCESS;
}

int cuModuleLoadData(void **module, const void *image) { mgpu_fix_loaded = 1; *module = (void *)1; return SUCCESS; }
int cuModuleUnload(void *module) { return SUCCESS; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = (void *)1; return SUCCESS; }

/* What is asked for is a variable of NVSHMEM's, which would be loaded if the kernel had it. */
int cuModuleGetGlobal_v2(void **place, unsigned long *size, void *module, const char *name) { return NOT_FOUND; }

int cuFuncSetAttribute(void *function, int attribute, int value) {
  if (attribute == DYNAMIC_SHARED_SIZE) mgpu_fix_shared = value;
  return SUCCESS;
}

int cuGetErrorName(int error, const char **text) { *text = "CUDA_ERROR"; return SUCCESS; }
int cuGetErrorString(int error, const char **text) { *text = "error of the stand-in for the CUDA driver"; return SUCCESS; }
