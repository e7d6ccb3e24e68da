"""Wrong answers to lab 02, and what each must cost."""

ONE_RATE, ADAPTIVE, ADAM = {"check_momentum"}, {"check_adaptive"}, {"check_adam"}
NOISE, FIT, BATCH = {"check_noise"}, {"check_fit"}, {"check_best_batch"}

SUM = "    state += grad * grad\n    data -= lr * grad / (np.sqrt(state) + eps)"
MEAN = "    state *= rho\n    state += (1 - rho) * grad * grad\n    data -= lr * grad / (np.sqrt(state) + eps)"
VELOCITY = "    state *= mu\n    state += grad\n    data -= lr * state\n"
NESTEROV = "    state *= mu\n    state += grad\n    data -= lr * (grad + mu * state)"
LOOK_AHEAD = "data -= lr * (grad + mu * state)"
STEP = "d = np.sqrt(u + eps) / np.sqrt(s + eps) * grad"
STEPS_MEAN = "    u *= rho\n    u += (1 - rho) * d * d\n"
CORRECTED = "(m / (1 - beta1**t)) / (np.sqrt(s / (1 - beta2**t)) + eps)"
PLAIN_FIT = "    A = np.stack([np.ones(len(steps)), 1 / batches], axis=1)\n"

MUTANTS = {
    "momentum": [
        (
            "the old velocity",
            (NESTEROV, "    old = state.copy()\n" + NESTEROV.replace("mu * state)", "mu * old)")),
            ONE_RATE,
        ),
        ("NAG: a mu of its own", (LOOK_AHEAD, "data -= lr * (grad + 0.9 * state)"), ONE_RATE),
        (
            "NAG: velocity lost",
            (NESTEROV, "    state = mu * state + grad\n    data -= lr * (grad + mu * state)"),
            ONE_RATE,
        ),
        ("a new array", ("data -= lr * grad", "data = data - lr * grad"), ONE_RATE),
        ("uphill", ("data -= lr * grad", "data += lr * grad"), ONE_RATE),
        ("no learning rate", ("data -= lr * grad", "data -= grad"), ONE_RATE),
        ("grad changed", ("data -= lr * grad", "grad *= lr; data -= grad"), ONE_RATE),
        ("a mean of gradients", (VELOCITY, VELOCITY.replace("+= grad", "+= (1 - mu) * grad")), ONE_RATE),
        ("weights first", (VELOCITY, "    data -= lr * state\n    state *= mu\n    state += grad\n"), ONE_RATE),
        ("velocity lost", (VELOCITY, "    state = mu * state + grad\n    data -= lr * state\n"), ONE_RATE),
        ("never slows down", (VELOCITY, VELOCITY.replace("state *= mu", "pass")), ONE_RATE),
        ("rate in the velocity", (VELOCITY, VELOCITY.replace("+= grad", "+= lr * grad")), ONE_RATE),
        ("a mu of its own", (VELOCITY, VELOCITY.replace("*= mu", "*= 0.9")), ONE_RATE),
        ("NAG is Momentum", (LOOK_AHEAD, "data -= lr * state"), ONE_RATE),
        ("NAG without the gradient", (LOOK_AHEAD, "data -= lr * mu * state"), ONE_RATE),
        ("NAG counts the velocity in full", (LOOK_AHEAD, "data -= lr * (grad + state)"), ONE_RATE),
        ("only tables", (LOOK_AHEAD, "data -= lr * (grad + mu * state) * (grad.ndim == 2)"), ONE_RATE),
    ],
    "adaptive": [
        ("Adagrad: not squared", (SUM, SUM.replace("grad * grad\n", "grad\n")), ADAPTIVE),
        ("RMSprop: a rho of its own", (MEAN, MEAN.replace("rho", "0.99")), ADAPTIVE),
        (
            "RMSprop: mean lost",
            (MEAN, MEAN.replace("    state *= rho\n    state +=", "    state = rho * state +")),
            ADAPTIVE,
        ),
        ("Adagrad: an eps of its own", (SUM, SUM.replace("+ eps", "+ 1e-8")), ADAPTIVE),
        ("RMSprop: no square in the mean", (MEAN, MEAN.replace("grad * grad\n", "grad\n")), ADAPTIVE),
        ("no root", (SUM, SUM.replace("np.sqrt(state)", "state")), ADAPTIVE),
        ("one sum for all", (SUM, SUM.replace("grad * grad\n", "np.sum(grad * grad)\n")), ADAPTIVE),
        ("sum of sizes", (SUM, SUM.replace("grad * grad\n", "np.abs(grad)\n")), ADAPTIVE),
        ("eps inside", (SUM, SUM.replace("(np.sqrt(state) + eps)", "np.sqrt(state + eps)")), ADAPTIVE),
        ("divides first", (SUM, "\n".join(reversed(SUM.split("\n")))), ADAPTIVE),
        ("Adagrad forgets", (SUM, SUM.replace("state +=", "state *= 0.99; state += 0.01 *")), ADAPTIVE),
        ("sum lost", (SUM, SUM.replace("state +=", "state = state +")), ADAPTIVE),
        ("RMSprop never forgets", (MEAN, SUM), ADAPTIVE),
        ("RMSprop: whole squares", (MEAN, MEAN.replace("(1 - rho) * ", "")), ADAPTIVE),
        ("RMSprop: eps inside", (MEAN, MEAN.replace("(np.sqrt(state) + eps)", "np.sqrt(state + eps)")), ADAPTIVE),
        (
            "RMSprop: corrected",
            (MEAN, MEAN.replace("np.sqrt(state)", "np.sqrt(state / (1 - rho**(step+1)))")),
            ADAPTIVE,
        ),
        ("Adadelta: eps outside", (STEP, "d = (np.sqrt(u) + eps) / (np.sqrt(s) + eps) * grad"), ADAPTIVE),
        ("Adadelta: upside down", (STEP, "d = np.sqrt(s + eps) / np.sqrt(u + eps) * grad"), ADAPTIVE),
        ("Adadelta: new u", (f"{STEP}\n{STEPS_MEAN}", f"d = grad\n{STEPS_MEAN}    {STEP}\n"), ADAPTIVE),
        ("Adadelta: steps with the rate", (STEPS_MEAN, STEPS_MEAN.replace("d * d", "(lr * d) ** 2")), ADAPTIVE),
        ("Adadelta: no memory of steps", (STEPS_MEAN, ""), ADAPTIVE),
        ("Adadelta: no rate", ("data -= lr * d", "data -= d"), ADAPTIVE),
        ("few steps only", (STEP, f"{STEP} * (step < 8)"), ADAPTIVE),
    ],
    "adam": [
        ("times t", (CORRECTED, CORRECTED.replace("**t", " * t")), ADAM),
        ("an eps of its own", ("+ eps", "+ 1e-8"), ADAM),
        ("eps missing", (" + eps", ""), ADAM),
        ("no correction", (CORRECTED, "m / (np.sqrt(s) + eps)"), ADAM),
        ("counts from 0", ("t = step + 1", "t = step"), ADAM),
        ("corrects the mean only", (CORRECTED, "(m / (1 - beta1**t)) / (np.sqrt(s) + eps)"), ADAM),
        ("corrects the squares only", (CORRECTED, "m / (np.sqrt(s / (1 - beta2**t)) + eps)"), ADAM),
        ("corrects twice", ("    data -= lr", "    m /= 1 - beta1**t; s /= 1 - beta2**t\n    data -= lr"), ADAM),
        ("no root", (CORRECTED, "(m / (1 - beta1**t)) / (s / (1 - beta2**t) + eps)"), ADAM),
        ("eps inside", (CORRECTED, "(m / (1 - beta1**t)) / np.sqrt(s / (1 - beta2**t) + eps)"), ADAM),
        ("betas swapped", ("t = step + 1", "t, beta1, beta2 = step + 1, beta2, beta1"), ADAM),
        ("state swapped", ("t = step + 1", "t, m, s = step + 1, s, m"), ADAM),
        ("a velocity", ("m += (1 - beta1) * grad", "m += grad"), ADAM),
        ("betas of its own", ("t = step + 1", "t, beta1, beta2 = step + 1, 0.9, 0.999"), ADAM),
        ("new arrays", ("m *= beta1", "m = m * beta1"), ADAM),
        ("correction ends", ("t = step + 1", "t = step + 1 if step < 9 else 10**9"), ADAM),
    ],
    "noise": [
        ("g is not squared", ("(gradients**2).sum(axis=1)", "np.abs(gradients).sum(axis=1)"), NOISE),
        ("a mean over weights", ("(gradients**2).sum(axis=1).mean()", "(gradients**2).mean()"), NOISE),
        ("not negative", ("return trace, squared_norm", "return trace, max(squared_norm, 0)"), NOISE),
        ("b of eight", ("* p * b /", "* p * 8 /"), NOISE),
        ("no noise left", ("* p * b / (p - 1)", "* b"), NOISE),
        ("biased signal", ("(p * large - small) / (p - 1)", "large"), NOISE),
        ("noise of one rank", ("(p * large - small) / (p - 1)", "large - trace / b"), NOISE),
        ("forgets b", ("* p * b / (p - 1)", "* p / (p - 1)"), NOISE),
        ("forgets p", ("* p * b / (p - 1)", "* b / (p - 1)"), NOISE),
        ("swapped", ("return trace, squared_norm", "return squared_norm, trace"), NOISE),
        ("negative", ("(small - large)", "(large - small)"), NOISE),
        ("sum over the ranks", (".sum(axis=1).mean()", ".sum()"), NOISE),
        ("norm of the sum", ("gradients.mean(axis=0)", "gradients.sum(axis=0)"), NOISE),
        ("norms, not squares", ("(gradients**2).sum(axis=1)", "np.linalg.norm(gradients, axis=1)"), NOISE),
        ("the ratio", ("return trace, squared_norm", "return trace / squared_norm"), NOISE),
        ("never negative", ("return trace, squared_norm", "return trace, abs(squared_norm)"), NOISE),
        ("four ranks at most", ("p = len(gradients)", "p = min(4, len(gradients))"), NOISE),
    ],
    "fit": [
        (
            "squares of the steps",
            ("[1 / steps, 1 / (batches * steps)]", "[1 / steps**2, 1 / (batches * steps**2)]"),
            FIT,
        ),
        ("the right side alone", ("np.ones(len(steps))", "1 / steps"), FIT),
        ("plain", ("    A = np.stack([1 / steps, 1 / (batches * steps)], axis=1)\n", PLAIN_FIT), FIT),
        ("absolute errors", ("np.ones(len(steps))", "steps"), FIT),
        ("swapped", ("return s_min, e_min", "return e_min, s_min"), FIT),
        ("columns swapped", ("[1 / steps, 1 / (batches * steps)]", "[1 / (batches * steps), 1 / steps]"), FIT),
        ("line in b", ("1 / (batches * steps)", "batches / steps"), FIT),
        ("critical batch", ("return s_min, e_min", "return s_min, e_min / s_min"), FIT),
        (
            "three points at most",
            ("    A = ", "    batches, steps = batches[:3], steps[:3]\n    A = "),
            FIT,
        ),
    ],
    "best_batch": [
        (
            "problem swapped",
            ("e_min * overhead / (s_min * per_sample)", "s_min * overhead / (e_min * per_sample)"),
            BATCH,
        ),
        (
            "a whole number",
            ("return min(max(batch, 1.0), largest)", "return round(min(max(batch, 1.0), largest))"),
            BATCH,
        ),
        (
            "no root",
            ("np.sqrt(e_min * overhead / (s_min * per_sample))", "e_min * overhead / (s_min * per_sample)"),
            BATCH,
        ),
        ("upside down", ("e_min * overhead / (s_min * per_sample)", "s_min * per_sample / (e_min * overhead)"), BATCH),
        ("critical batch", ("np.sqrt(e_min * overhead / (s_min * per_sample))", "e_min / s_min"), BATCH),
        ("machine alone", ("e_min * overhead / (s_min * per_sample)", "overhead / per_sample"), BATCH),
        (
            "machine upside down",
            ("e_min * overhead / (s_min * per_sample)", "e_min * per_sample / (s_min * max(overhead, 1e-9))"),
            BATCH,
        ),
        ("no largest", ("min(max(batch, 1.0), largest)", "max(batch, 1.0)"), BATCH),
        ("no smallest", ("min(max(batch, 1.0), largest)", "min(batch, largest)"), BATCH),
        (
            "knows the cases",
            ("    batch = np", "    e_min, s_min = 800, 50\n    batch = np"),
            BATCH,
        ),
    ],
}
