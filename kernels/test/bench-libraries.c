/* SPDX-License-Identifier: Apache-2.0 */
/* bench-libraries.c - measures NVIDIA's libraries alone on a GPU.
 *
 *     bench-libraries record [JSON]          cuDNN's record of the GPU, with which cuDNN plans on a machine without a
 *     GPU
 *     bench-libraries product cpu|cuda N     how fast cuBLASLt multiplies two bf16 matrices of N x N
 *
 * With JSON, the first form prints the record in that file, as cuDNN has read it. The first line of both forms' output
 * is one JSON object. Exit: 3 if the libraries cannot be opened here. */
#include <stdio.h>

#ifndef SDTRAIN_CUDA_LIBRARIES
int main(void)
{
    (void)fprintf(stderr,
                  "bench-libraries: there was no cudnn.h or no cublasLt.h when it was built\n");
    return 3;
}
#else

#include "base/clock.h"
#include "base/number/philox.h"
#include "kernels/cuda/module/forward.h"
#include "kernels/cuda/module/libraries.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

enum { EXIT_NO_LIBRARIES = 3, CANDIDATES = 8, CHECKED = 64, RECORD_MAX = 1 << 20 };

#define WORKSPACE_BYTES ((size_t)64 << 20)

static void stop(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench-libraries: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void check(int r, const Error *err)
{
    if (r < 0)
        stop("device", err->text);
}

/* ---- cuDNN's record ---- */

static void dnn(cudnnStatus_t status, const char *what)
{
    char more[1024] = "", text[1200];
    if (status == CUDNN_STATUS_SUCCESS)
        return;
    cudnnGetLastErrorString(more, sizeof(more));
    (void)snprintf(text, sizeof(text), "%s: %s", cudnnGetErrorString(status), more);
    stop(what, text);
}

static size_t read_record(const char *path, char record[RECORD_MAX])
{
    FILE *file = fopen(path, "r");
    if (!file)
        stop(path, "cannot be read");
    size_t n = fread(record, 1, RECORD_MAX - 1, file);
    (void)fclose(file); /* closing cannot lose data: the file was only read */
    while (n > 0 && record[n - 1] == '\n')
        n--;
    record[n] = '\0';
    return n;
}

static void print_record(const char *path)
{
    static char record[RECORD_MAX];
    cudnnHandle_t handle = NULL;
    cudnnBackendDescriptor_t d;
    int64_t n = 0;

    if (!path)
        dnn(cudnnCreate(&handle), "a handle");
    dnn(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d), "a record");
    if (path)
        dnn(cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                     (int64_t)read_record(path, record) + 1, record),
            path);
    else
        dnn(cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                     &handle),
            "the GPU's record");
    dnn(cudnnBackendFinalize(d), "the record's end");
    memset(record, 0, sizeof(record));
    dnn(cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
                                 &n, NULL),
        "the record's length");
    if (n <= 0 || n >= RECORD_MAX)
        stop("the record's length", "none that a record has");
    dnn(cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, n,
                                 &n, record),
        "the record's text");
    (void)puts(record);
    dnn(cudnnBackendDestroyDescriptor(d), "the end of a record");
    if (handle)
        dnn(cudnnDestroy(handle), "the end of a handle");
}

/* ---- cuBLASLt's product ---- */

static void blas(cublasStatus_t status, const char *what)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        stop(what, cublasLtGetStatusString(status));
}

/* d = a^T b for a column-major library: element (i, j) of d is row i of a times row j of b, and is stored at d[j * n +
 * i]. */
typedef struct Product {
    Device *device;
    uint64_t n;
    void *a, *b, *d, *workspace; /* device memory */
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t layout; /* the layout of a, b and d */
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int n_found; /* 0: the library chooses at each call */
} Product;

static void *memory_of(const Product *p, size_t n_bytes)
{
    void *memory;
    Error err = ERROR_INIT;
    check(device_allocate(p->device, n_bytes, &memory, &err), &err);
    return memory;
}

/* Makes a matrix of normal draws from a seed: with zeros a GPU needs less power, and is faster. */
static void *matrix_new(const Product *p, uint64_t seed)
{
    const size_t n = (size_t)(p->n * p->n);
    int64_t *position = memory_of(p, sizeof(*position));
    float *wide = memory_of(p, n * sizeof(float));
    void *matrix = memory_of(p, n * 2);
    normal_noise(p->device, seed, 1, (int64_t)n, position, wide);
    cast_from_f32(p->device, (int64_t)n, wide, matrix);
    Error err = ERROR_INIT;
    check(device_synchronise(p->device, &err), &err);
    device_release(p->device, wide);
    device_release(p->device, position);
    return matrix;
}

static void product_open(Product *p)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const size_t room = WORKSPACE_BYTES;
    /* As for the linear layers, reductions in place are not allowed: their sums depend on the order in which blocks
     * finish. */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulPreference_t preference;

    p->a = matrix_new(p, 1);
    p->b = matrix_new(p, 2);
    p->d = memory_of(p, (size_t)(p->n * p->n) * 2);
    p->workspace = memory_of(p, WORKSPACE_BYTES);
    blas(cublasLtCreate(&p->handle), "a handle");
    blas(cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "the operation");
    blas(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                        sizeof(transposed)),
         "the operation's transpose");
    blas(cublasLtMatrixLayoutCreate(&p->layout, CUDA_R_16BF, p->n, p->n, (int64_t)p->n),
         "a layout");
    blas(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    blas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &room, sizeof(room)),
         "the workspace");
    blas(cublasLtMatmulPreferenceSetAttribute(preference,
                                              CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                              &reductions, sizeof(reductions)),
         "the reductions");
    if (cublasLtMatmulAlgoGetHeuristic(p->handle, p->operation, p->layout, p->layout, p->layout,
                                       p->layout, preference, CANDIDATES, p->found,
                                       &p->n_found) != CUBLAS_STATUS_SUCCESS)
        p->n_found = 0;
    blas(cublasLtMatmulPreferenceDestroy(preference), "the end of a preference");
}

static void product_close(Product *p)
{
    void *const memory[] = {p->a, p->b, p->d, p->workspace};
    blas(cublasLtMatrixLayoutDestroy(p->layout), "the end of a layout");
    blas(cublasLtMatmulDescDestroy(p->operation), "the end of an operation");
    blas(cublasLtDestroy(p->handle), "the end of a handle");
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        device_release(p->device, memory[i]);
}

/* Returns how many microseconds one product takes, measured over `times` products in a row. */
static double multiply(const Product *p, int candidate, int times)
{
    const float one = 1, zero = 0;
    const cublasLtMatmulAlgo_t *algorithm = p->n_found > 0 ? &p->found[candidate].algo : NULL;
    Error err = ERROR_INIT;
    const uint64_t began = clock_monotonic_usec();
    for (int i = 0; i < times; i++)
        blas(cublasLtMatmul(p->handle, p->operation, &one, p->a, p->layout, p->b, p->layout, &zero,
                            p->d, p->layout, p->d, p->layout, algorithm, p->workspace,
                            WORKSPACE_BYTES, NULL),
             "a product");
    check(device_synchronise(p->device, &err), &err);
    return (double)MAX(clock_monotonic_usec() - began, (uint64_t)1) / times;
}

/* Returns an element of a bf16 matrix. The bits of a bf16 are the upper half of an fp32's. */
static double value_at(const uint16_t *matrix, uint64_t i)
{
    const uint32_t bits = (uint32_t)matrix[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* Returns the largest squared error among CHECKED random elements of the product, divided by n. */
static double worst_error(const Product *p)
{
    const size_t n_bytes = (size_t)(p->n * p->n) * 2;
    uint16_t *host[3] = {NULL};
    void *const from[3] = {p->a, p->b, p->d};
    double worst = 0;
    for (int i = 0; i < 3; i++) {
        host[i] = malloc(n_bytes);
        if (!host[i])
            stop("check", "out of memory");
        device_download(p->device, host[i], from[i], n_bytes);
    }
    for (uint64_t k = 0; k < CHECKED; k++) {
        const Philox draw = philox4x32(7, k, 0);
        const uint64_t i = draw.word[0] % p->n, j = draw.word[1] % p->n;
        double sum = 0;
        for (uint64_t at = 0; at < p->n; at++)
            sum += value_at(host[0], i * p->n + at) * value_at(host[1], j * p->n + at);
        const double wrong = value_at(host[2], j * p->n + i) - sum;
        worst = MAX(worst, wrong < 0 ? -wrong : wrong);
    }
    for (int i = 0; i < 3; i++)
        free(host[i]);
    return worst * worst / (double)p->n;
}

static void print_product(DeviceKind kind, uint64_t n, const CudaLibraries *libraries)
{
    Product p = {.n = n};
    Error err = ERROR_INIT;
    const DeviceOptions options = {.kind = kind, .threads = 1, .type = DATA_BF16};
    double best = 0;
    int which = 0;

    check(device_open(&options, &p.device, &err), &err);
    product_open(&p);
    for (int i = 0; i < MAX(p.n_found, 1); i++) {
        (void)multiply(&p, i, 1); /* this run only warms up */
        const double usec = multiply(&p, i, 5);
        which = i == 0 || usec < best ? i : which;
        best = i == 0 ? usec : MIN(best, usec);
    }
    const double usec = multiply(&p, which, n < 1024 ? 1 : 100), error = worst_error(&p);
    const double rate = 2.0 * (double)n * (double)n * (double)n / usec * 1e6;
    printf("{\"n\":%llu,\"usec\":%.2f,\"flops\":%.4g,\"squared_error\":%.3g,\"candidates\":%d,"
           "\"candidate\":%d,\"cublaslt\":%zu,\"folder\":\"%s\"}\n",
           (unsigned long long)n, usec, rate, error, p.n_found, which, libraries->cublaslt_version,
           libraries->cublaslt_folder);
    product_close(&p);
    p.device = device_free(p.device);
    /* The sums are N(0, n), so the largest of 64 sums is below 4 sqrt(n). Rounding to bf16 changes a sum by at most
     * half a bit. */
    if (!(error < 1e-3))
        stop("product", "it is not the product");
}

int main(int argc, char **argv)
{
    const CudaLibraries *libraries;
    Error err = ERROR_INIT;
    const bool is_record = argc >= 2 && argc <= 3 && strcmp(argv[1], "record") == 0;
    const bool is_product = argc == 4 && strcmp(argv[1], "product") == 0 && atoi(argv[3]) > 0;

    if (!is_record && !is_product) {
        (void)fprintf(stderr, "usage: bench-libraries record [JSON] | product cpu|cuda N\n");
        return 2;
    }
    if (cuda_libraries_open(&libraries, &err) < 0) {
        (void)fprintf(stderr, "bench-libraries: %s\n", err.text);
        return EXIT_NO_LIBRARIES;
    }
    if (is_record)
        print_record(argc == 3 ? argv[2] : NULL);
    else
        print_product(strcmp(argv[2], "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU,
                      (uint64_t)atoi(argv[3]), libraries);
    return 0;
}
#endif
