// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

template <typename T>
void gae_one(const T* rewards, const T* values, const T* dones, T last_value, std::size_t n,
             T gamma, T lam, T* advantages, T* returns) {
  T next_value = last_value;
  T advantage = 0;
  for (std::size_t t = n; t-- > 0;) {
    const T alive = T(1) - dones[t];
    const T delta = rewards[t] + gamma * next_value * alive - values[t];
    advantage = delta + gamma * lam * alive * advantage;
    advantages[t] = advantage;
    returns[t] = advantage + values[t];
    next_value = values[t];
  }
}
