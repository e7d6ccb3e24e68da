// recurrent.cu -- one step of a gated recurrent unit: all that lies between two matrix products, in one launch. Arrays are
// stacks of gates over time, (gate, steps, batch hidden), of which a launch works on step t.

// h = (1 - z) n + z state, with r, z = sigmoid(gates + u), n = tanh(gates + r (u + c)). The gates take the place of their
// inputs.
__device__ float sigmoid(float a) { return 0.5f * tanhf(0.5f * a) + 0.5f; }

extern "C" __global__ void gru_step(const float* u, const float* c, const float* state, float* gates, float* candidates,
                                    float* h, int t, int steps, int size, int hidden) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    int at = t * size + i, all = steps * size;
    float r = sigmoid(gates[at] + u[i]), z = sigmoid(gates[all + at] + u[size + i]);
    float candidate = u[2 * size + i] + c[i % hidden], n = tanhf(gates[2 * all + at] + r * candidate);
    gates[at] = r;
    gates[all + at] = z;
    gates[2 * all + at] = n;
    candidates[at] = candidate;
    h[at] = (state[i] - n) * z + n;
}

// Back: dh of step t is what its output got and, but for the last step, what came through step t + 1: three products with U
// in `parts`, and the share z of its dh. From it the gradients of u + c, and before r, z and n. `state` is the one before
// the first step; 0 if there was none.
extern "C" __global__ void gru_step_back(const float* parts, const float* gates, const float* candidates, const float* h,
                                         const float* state, float* dy, float* grads, int t, int steps, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    int at = t * size + i, all = steps * size;
    float dh = dy[at];
    if (t + 1 < steps)
        dh += parts[i] + parts[size + i] + parts[2 * size + i] + dy[at + size] * gates[all + at + size];
    float r = gates[at], z = gates[all + at], n = gates[2 * all + at];
    float before = t ? h[at - size] : state ? state[i] : 0.0f, dn = dh * (1.0f - n * n) * (1.0f - z);
    dy[at] = dh;
    grads[at] = dn * r;
    grads[all + at] = dn * candidates[at] * (1.0f - r) * r;
    grads[2 * all + at] = dh * (before - n) * z * (1.0f - z);
    grads[3 * all + at] = dn;
}
