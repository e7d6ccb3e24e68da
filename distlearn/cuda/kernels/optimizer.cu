// optimizer.cu -- a whole update rule in one pass over memory. Written out with array operations the same takes one pass
// per operation: 5 for momentum, 14 for Adam.

// v = momentum v + g + decay w;  w -= lr v
template <typename T>
__global__ void sgd_momentum(T* w, T* v, const T* g, T lr, T momentum, T decay, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        T u = momentum * v[i] + g[i] + decay * w[i];
        v[i] = u;
        w[i] -= lr * u;
    }
}

// Adam (Kingma and Ba, 2015, algorithm 1). `lr` has the corrections of the first steps in it, and so has `eps`:
// lr sqrt(1 - beta2^t) / (1 - beta1^t) and eps sqrt(1 - beta2^t) give the same quotient.
template <typename T>
__global__ void adam(T* w, T* m, T* v, const T* g, T lr, T beta1, T beta2, T eps, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        T d = g[i];
        T first = beta1 * m[i] + (1 - beta1) * d, second = beta2 * v[i] + (1 - beta2) * d * d;
        m[i] = first;
        v[i] = second;
        w[i] -= lr * first / (sqrt(second) + eps);
    }
}
