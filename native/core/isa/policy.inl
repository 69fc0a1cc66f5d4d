// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

// The logit of a forbidden option: its probability is exactly 0, and 0 times its logarithm is 0.
constexpr float kForbidden = -1e8f;

// `x` where the option is allowed, otherwise `instead`.
inline Vector<float> where_allowed(const Choice& choice, std::size_t option, std::size_t i,
                                   Vector<float> x, float instead) {
  if (choice.masks == nullptr) return x;
  const Vector<float> zero = {};
  return load(choice.masks + option * choice.mask_stride + i) == zero ? broadcast(instead) : x;
}

inline Vector<float> logit_of(const Choice& choice, const float* logits, std::size_t option,
                              std::size_t i) {
  return where_allowed(choice, option, i, load(logits + option * choice.stride + i), kForbidden);
}

void choice_forward(const Choice& choice, float* logits, float* probs, float* entropy,
                    float* log_prob, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kFloats) {
    Vector<float> highest = logit_of(choice, logits, 0, i);
    for (std::size_t j = 1; j < choice.n_options; ++j) {
      const Vector<float> logit = logit_of(choice, logits, j, i);
      highest = logit > highest ? logit : highest;
    }
    Vector<float> sum = {};
    for (std::size_t j = 0; j < choice.n_options; ++j) {
      const std::size_t at = j * choice.stride + i;
      const Vector<float> above = logit_of(choice, logits, j, i) - highest;
      const Vector<float> exponential = exp_of<float>(above);
      store(logits + at, above);
      store(probs + at, exponential);
      sum += exponential;
    }
    const Vector<float> log_sum = log_of(sum), one = broadcast(1.0f), zero = {};
    const Vector<float> inverse = one / sum, taken = load(choice.actions + i);
    Vector<float> minus_entropy = {}, found = load(log_prob + i);
    for (std::size_t j = 0; j < choice.n_options; ++j) {
      const std::size_t at = j * choice.stride + i;
      const Vector<float> log = load(logits + at) - log_sum, p = load(probs + at) * inverse;
      store(logits + at, log);
      store(probs + at, p);
      minus_entropy = multiply_add(p, log, minus_entropy);
      found += taken == broadcast(static_cast<float>(j)) ? log : zero;
    }
    store(entropy + i, -minus_entropy);
    store(log_prob + i, found);
  }
}

// With p = softmax(z): dlog p_a / dz = onehot(a) - p and dH / dz = -p (log p + H).
void choice_backward(const Choice& choice, const float* log_probs, float* probs,
                     const float* entropy, const Slopes& slopes, std::size_t n) {
  const Vector<float> one = broadcast(1.0f), zero = {};
  for (std::size_t i = 0; i < n; i += kFloats) {
    const Vector<float> w = load(slopes.w + i), c = load(slopes.c + i);
    const Vector<float> h = load(entropy + i), taken = load(choice.actions + i);
    for (std::size_t j = 0; j < choice.n_options; ++j) {
      const std::size_t at = j * choice.stride + i;
      const Vector<float> p = load(probs + at);
      const Vector<float> is_taken = taken == broadcast(static_cast<float>(j)) ? one : zero;
      const Vector<float> grad = w * (p - is_taken) + c * p * (load(log_probs + at) + h);
      store(probs + at, where_allowed(choice, j, i, grad, 0.0f));
    }
  }
}

// softplus(z) = max(z, 0) + log(1 + exp(-|z|))
void bit_forward(const float* logits, const float* bits, float* probs, float* entropy,
                 float* log_prob, std::size_t n) {
  const Vector<float> one = broadcast(1.0f), zero = {};
  for (std::size_t i = 0; i < n; i += kFloats) {
    const Vector<float> z = load(logits + i);
    const Vector<float> tail = exp_of<float>(z < zero ? z : -z);  // exp(-|z|)
    const Vector<float> softplus = (z < zero ? zero : z) + log_of(one + tail);
    const Vector<float> p = (z < zero ? tail : one) / (one + tail);
    store(probs + i, p);
    store(entropy + i, load(entropy + i) + (softplus - z * p));
    store(log_prob + i, load(log_prob + i) + (load(bits + i) * z - softplus));
  }
}

// dlog pi / dz = a - p and dH / dz = -z p (1 - p).
void bit_backward(const float* logits, const float* bits, float* probs, const Slopes& slopes,
                  std::size_t n) {
  const Vector<float> one = broadcast(1.0f);
  for (std::size_t i = 0; i < n; i += kFloats) {
    const Vector<float> p = load(probs + i);
    store(probs + i, load(slopes.w + i) * (p - load(bits + i)) +
                         load(slopes.c + i) * load(logits + i) * p * (one - p));
  }
}

void normal_forward(float* means, const float* actions, float precision, float* log_prob,
                    std::size_t n) {
  for (std::size_t i = 0; i < n; i += kFloats) {
    const Vector<float> error = (load(means + i) - load(actions + i)) * precision;
    store(means + i, error);
    store(log_prob + i, load(log_prob + i) - 0.5f * error * error);
  }
}

// With e = (mean - a) / std: dlog pi / dmean = -e / std and dlog pi / dlog std = e*e - 1.
double normal_backward(float* errors, float precision, const float* w, std::size_t n) {
  TermSum sum;
  for (std::size_t i = 0; i < n; i += kFloats) {
    const Vector<float> error = load(errors + i), slope = load(w + i);
    sum.add(slope - slope * error * error);
    store(errors + i, slope * error * precision);
  }
  return sum_lanes<double>(sum.a + sum.b);
}

PolicySums clipped_surrogate(const float* log_probs, const float* old_log_probs,
                             const float* advantages, const float* weights, float clip, float* w,
                             std::size_t n) {
  const Vector<float> low = broadcast(1.0f - clip), high = broadcast(1.0f + clip);
  const Vector<float> zero = {};
  TermSum gain, kl, outside;
  for (std::size_t i = 0; i < n; i += kFloats) {
    const Vector<float> log_ratio = load(log_probs + i) - load(old_log_probs + i);
    const ExpPieces<float> e = exp_pieces<float>(log_ratio);
    const Vector<float> ratio = ((e.r + e.tail) + 1.0f) * e.scale1 * e.scale2;
    const Vector<float> above = ratio < low ? low : ratio;
    const Vector<float> clipped = above > high ? high : above;
    const Vector<float> advantage = load(advantages + i), weight = load(weights + i);
    const Vector<float> gains = advantage * ratio, limits = advantage * clipped;
    gain.add((gains <= limits ? gains : limits) * weight);
    // exp(x) - 1 - x, which is the tail where x needs no range reduction, without cancellation.
    kl.add((e.n == zero ? e.tail : ratio - 1.0f - log_ratio) * weight);
    outside.add(ratio == clipped ? zero : weight);
    // Where the limit is the lower one the loss is flat, elsewhere dAr / dlog r = A r.
    store(w + i, gains <= limits ? gains * weight : zero);
  }
  return {sum_lanes<double>(gain.a + gain.b), sum_lanes<double>(kl.a + kl.b),
          sum_lanes<double>(outside.a + outside.b)};
}

double policy_gradient(const float* log_probs, const float* advantages, const float* weights,
                       float* w, std::size_t n) {
  TermSum gain;
  for (std::size_t i = 0; i < n; i += kFloats) {
    const Vector<float> slope = load(advantages + i) * load(weights + i);
    gain.add(slope * load(log_probs + i));
    store(w + i, slope);
  }
  return sum_lanes<double>(gain.a + gain.b);
}

struct Error {
  Vector<float> square, slope;
};

// Huber's: e * e, and beyond `delta` the line that goes on from there; NaN stays.
inline Error error_of(Vector<float> e, float delta) {
  const Vector<float> high = broadcast(delta), low = broadcast(-delta);
  const Vector<float> below = e < low ? low : e;
  const Vector<float> held = below > high ? high : below;
  return {held * (2.0f * e - held), held};
}

double squared_errors(float* values, const float* returns, const float* old_values, float clip,
                      const float* weights, float factor, float delta, std::size_t n) {
  const Vector<float> one = broadcast(1.0f), half = broadcast(0.5f), zero = {};
  TermSum squares;
  for (std::size_t i = 0; i < n; i += kFloats) {
    const Vector<float> value = load(values + i), target = load(returns + i);
    const Vector<float> weight = load(weights + i);
    auto [square, slope] = error_of(value - target, delta);
    if (old_values != nullptr) {
      const Vector<float> old = load(old_values + i), move = value - old;
      const Vector<float> low = broadcast(-clip), high = broadcast(clip);
      const Vector<float> above = move < low ? low : move;
      const Vector<float> kept = above > high ? high : above;
      const auto [limited, clipped] = error_of(old + kept - target, delta);
      // Where both are equal, each has half a share.
      const Vector<float> share = square == limited ? half : (square > limited ? one : zero);
      slope = share * slope + (one - share) * (kept == move ? clipped : zero);
      square = square < limited ? limited : square;
    }
    squares.add(square * weight);
    store(values + i, slope * weight * factor);
  }
  return sum_lanes<double>(squares.a + squares.b);
}

double dot(const float* a, const float* b, std::size_t n) {
  TermSum sum;
  for (std::size_t i = 0; i < n; i += kFloats) sum.add(load(a + i) * load(b + i));
  return sum_lanes<double>(sum.a + sum.b);
}
