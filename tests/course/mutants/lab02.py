"""Wrong answers to lab 02."""

SUM = "    state += grad * grad\n    data -= lr * grad / (np.sqrt(state) + eps)"
MEAN = "    state *= rho\n    state += (1 - rho) * grad * grad\n    data -= lr * grad / (np.sqrt(state) + eps)"
VELOCITY = "    state *= mu\n    state += grad\n    data -= lr * state\n"
NESTEROV = "    state *= mu\n    state += grad\n    data -= lr * (grad + mu * state)"
LOOK_AHEAD = "data -= lr * (grad + mu * state)"
CORRECTED = "(m / (1 - beta1**t)) / (np.sqrt(s / (1 - beta2**t)) + eps)"
FALLS = "0.01 ** (step / steps)"
PLAIN_FIT = "    A = np.stack([np.ones(len(steps)), 1 / batches], axis=1)\n"

MUTANTS = {
    "momentum": [
        ("the old velocity", NESTEROV, "    old = state.copy()\n" + NESTEROV.replace("mu * state)", "mu * old)")),
        ("NAG: a mu of its own", LOOK_AHEAD, "data -= lr * (grad + 0.9 * state)"),
        ("NAG: velocity lost", NESTEROV, "    state = mu * state + grad\n    data -= lr * (grad + mu * state)"),
        ("a new array", "data -= lr * grad", "data = data - lr * grad"),
        ("uphill", "data -= lr * grad", "data += lr * grad"),
        ("no learning rate", "data -= lr * grad", "data -= grad"),
        ("grad changed", "data -= lr * grad", "grad *= lr; data -= grad"),
        ("velocity lost", VELOCITY, "    state = mu * state + grad\n    data -= lr * state\n"),
        ("a mu of its own", VELOCITY, VELOCITY.replace("*= mu", "*= 0.9")),
        ("only tables", LOOK_AHEAD, "data -= lr * (grad + mu * state) * (grad.ndim == 2)"),
    ],
    "adaptive": [
        ("RMSprop: a rho of its own", MEAN, MEAN.replace("rho", "0.99")),
        ("RMSprop: mean lost", MEAN, MEAN.replace("    state *= rho\n    state +=", "    state = rho * state +")),
        ("Adagrad: an eps of its own", SUM, SUM.replace("+ eps", "+ 1e-8")),
        ("eps inside", SUM, SUM.replace("(np.sqrt(state) + eps)", "np.sqrt(state + eps)")),
        ("sum lost", SUM, SUM.replace("state +=", "state = state +")),
        ("RMSprop: eps inside", MEAN, MEAN.replace("(np.sqrt(state) + eps)", "np.sqrt(state + eps)")),
        ("few steps only", MEAN, f"{MEAN} * (step < 8)"),
    ],
    "adam": [
        ("an eps of its own", "+ eps", "+ 1e-8"),
        ("eps missing", " + eps", ""),
        ("corrects twice", "    data -= lr", "    m /= 1 - beta1**t; s /= 1 - beta2**t\n    data -= lr"),
        ("eps inside", CORRECTED, "(m / (1 - beta1**t)) / np.sqrt(s / (1 - beta2**t) + eps)"),
        ("betas of its own", "t = step + 1", "t, beta1, beta2 = step + 1, 0.9, 0.999"),
        ("new arrays", "m *= beta1", "m = m * beta1"),
        ("correction ends", "t = step + 1", "t = step + 1 if step < 9 else 10**9"),
    ],
    "schedule": [
        ("constant", FALLS, "1"),
        ("rises", FALLS, "(step + 1) / steps"),
        ("linear", FALLS, "1 - step / steps"),
        ("a tenth at half", FALLS, "1.0 if step < steps / 2 else 0.1"),
        ("cosine", FALLS, "(1 + np.cos(np.pi * step / steps)) / 2"),
        ("a whole cosine", FALLS, "np.cos(np.pi * step / steps)"),
        ("one length", FALLS, "0.99**step"),
        ("slower, one length", FALLS, "0.995**step"),
        ("the root", FALLS, "(step + 1) ** -0.5"),
        ("harmonic", FALLS, "1 / (step + 1)"),
        ("too little", FALLS, "0.3 ** (step / steps)"),
        ("too much", FALLS, "0.0001 ** (step / steps)"),
        ("of 400 steps", FALLS, "0.01 ** (step / 400)"),
        ("stops", FALLS, "1.0 if step < steps // 2 else 0.0"),
        ("a list", FALLS, "[0.01 ** (step / steps)]"),
        ("nothing", f"return {FALLS}", f"factor = {FALLS}"),
    ],
    "noise": [
        ("g is not squared", "(gradients**2).sum(axis=1)", "np.abs(gradients).sum(axis=1)"),
        ("a mean over weights", "(gradients**2).sum(axis=1).mean()", "(gradients**2).mean()"),
        ("not negative", "return trace, squared_norm", "return trace, max(squared_norm, 0)"),
        ("b of eight", "* p * b /", "* p * 8 /"),
        ("no noise left", "* p * b / (p - 1)", "* b"),
        ("biased signal", "(p * large - small) / (p - 1)", "large"),
        ("noise of one rank", "(p * large - small) / (p - 1)", "large - trace / b"),
        ("forgets b", "* p * b / (p - 1)", "* p / (p - 1)"),
        ("forgets p", "* p * b / (p - 1)", "* b / (p - 1)"),
        ("swapped", "return trace, squared_norm", "return squared_norm, trace"),
        ("negative", "(small - large)", "(large - small)"),
        ("sum over the ranks", ".sum(axis=1).mean()", ".sum()"),
        ("norm of the sum", "gradients.mean(axis=0)", "gradients.sum(axis=0)"),
        ("norms, not squares", "(gradients**2).sum(axis=1)", "np.linalg.norm(gradients, axis=1)"),
        ("the ratio", "return trace, squared_norm", "return trace / squared_norm"),
        ("never negative", "return trace, squared_norm", "return trace, abs(squared_norm)"),
        ("four ranks at most", "p = len(gradients)", "p = min(4, len(gradients))"),
    ],
    "fit": [
        ("squares of the steps", "1 / steps, 1 / (batches * steps)]", "1 / steps**2, 1 / (batches * steps**2)]"),
        ("the right side alone", "np.ones(len(steps))", "1 / steps"),
        ("plain", "    A = np.stack([1 / steps, 1 / (batches * steps)], axis=1)\n", PLAIN_FIT),
        ("absolute errors", "np.ones(len(steps))", "steps"),
        ("swapped", "return s_min, e_min", "return e_min, s_min"),
        ("columns swapped", "[1 / steps, 1 / (batches * steps)]", "[1 / (batches * steps), 1 / steps]"),
        ("line in b", "1 / (batches * steps)", "batches / steps"),
        ("critical batch", "return s_min, e_min", "return s_min, e_min / s_min"),
        ("three points at most", "    A = ", "    batches, steps = batches[:3], steps[:3]\n    A = "),
    ],
    "best_batch": [
        ("problem swapped", "e_min * overhead / (s_min * per_", "s_min * overhead / (e_min * per_"),
        ("a whole number", " min(max(batch, 1.0), largest)", " round(min(max(batch, 1.0), largest))"),
        ("no root", "np.sqrt(e_min * overhead / (s_min * per_sample))", "e_min * overhead / (s_min * per_sample)"),
        ("upside down", "e_min * overhead / (s_min * per_sample)", "s_min * per_sample / (e_min * overhead)"),
        ("critical batch", "np.sqrt(e_min * overhead / (s_min * per_sample))", "e_min / s_min"),
        ("machine alone", "e_min * overhead / (s_min * per_sample)", "overhead / per_sample"),
        ("machine upside down", "overhead / (s_min * per_sample", "per_sample / (s_min * max(overhead, 1e-9)"),
        ("no largest", "min(max(batch, 1.0), largest)", "max(batch, 1.0)"),
        ("no smallest", "min(max(batch, 1.0), largest)", "min(batch, largest)"),
        ("knows the cases", "    batch = np", "    e_min, s_min = 800, 50\n    batch = np"),
    ],
}
