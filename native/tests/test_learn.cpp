// Products, activations and networks of native/core/learn against plain loops.
#include <cmath>
#include <random>
#include <vector>

#include "activations.hpp"
#include "check.hpp"
#include "core/isa/kernels.hpp"
#include "core/learn/mlp.hpp"

namespace {

using namespace sharpwave;

std::vector<float> random_floats(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(n);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

void test_products_are_those_of_plain_loops() {
  const Kernels* tables[3];
  const int count = supported_kernels(tables);
  for (int t = 0; t < count; ++t) {
    const LearnKernels& learn = tables[t]->learn;
    for (const std::size_t m : {1, 5, 6, 7, 13, 40}) {
      for (const std::size_t n : {1, 2, 15, 16, 17, 33, 64}) {
        for (const std::size_t k : {1, 3, 8, 23, 64}) {
          for (const bool a_across : {false, true}) {
            for (const bool b_across : {false, true}) {
              for (const bool add : {false, true}) {
                const std::vector<float> a = random_floats(m * k, 1), b = random_floats(k * n, 2);
                std::vector<float> c = random_floats(m * n, 3);
                const std::vector<float> before = c;
                std::vector<float> work(learn.product_work(k));
                const MatrixView a_view =
                    a_across ? MatrixView{a.data(), 1, m} : MatrixView{a.data(), k, 1};
                const MatrixView b_view =
                    b_across ? MatrixView{b.data(), 1, k} : MatrixView{b.data(), n, 1};
                learn.product({m, n, k, a_view, b_view, c.data(), n, add}, work.data());
                for (std::size_t i = 0; i < m; ++i) {
                  for (std::size_t j = 0; j < n; ++j) {
                    double sum = add ? before[i * n + j] : 0.0;
                    for (std::size_t l = 0; l < k; ++l) {
                      sum += static_cast<double>(a_view.data[i * a_view.row + l * a_view.column]) *
                             b_view.data[l * b_view.row + j * b_view.column];
                    }
                    CHECK(std::abs(sum - c[i * n + j]) < 1e-4);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}

void test_tanh_is_that_of_the_library() {
  const Kernels* tables[3];
  const int count = supported_kernels(tables);
  for (int t = 0; t < count; ++t) {
    std::vector<float> x;
    for (double v = -12.0; v < 12.0; v += 0.001) x.push_back(static_cast<float>(v));
    for (const float v : {0.0f, 1e-8f, -1e-20f, 88.0f, -500.0f, 1e30f}) x.push_back(v);
    const std::vector<float> zeros(x.size());
    std::vector<float> y = x;
    tables[t]->learn.bias_activations[index_of(Activation::tanh)](y.data(), zeros.data(), nullptr,
                                                                  1, x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = std::tanh(static_cast<double>(x[i]));
      CHECK(std::abs(y[i] - expected) <= 4e-7 * std::abs(expected) + 1e-30);
    }
  }
}

// The sum of outputs weighted by w, in double.
double weighted_output(const std::vector<std::size_t>& sizes, Activation activation,
                       const std::vector<double>& parameters, const std::vector<float>& x,
                       const std::vector<float>& w, std::size_t n_rows) {
  double total = 0.0;
  for (std::size_t row = 0; row < n_rows; ++row) {
    std::vector<double> values(x.begin() + row * sizes[0], x.begin() + (row + 1) * sizes[0]);
    std::size_t at = 0;
    for (std::size_t layer = 0; layer + 1 < sizes.size(); ++layer) {
      const std::size_t in = sizes[layer], out = sizes[layer + 1];
      std::vector<double> next(out);
      for (std::size_t o = 0; o < out; ++o) {
        next[o] = parameters[at + in * out + o];
        for (std::size_t i = 0; i < in; ++i) next[o] += parameters[at + o * in + i] * values[i];
        if (layer + 2 < sizes.size()) {
          next[o] = activated(activation, next[o]);
        }
      }
      at += in * out + out;
      values = next;
    }
    for (std::size_t o = 0; o < values.size(); ++o) total += values[o] * w[row * values.size() + o];
  }
  return total;
}

void test_gradients_are_those_of_differences() {
  for (const Activation activation : kActivations) {
    const std::vector<std::size_t> sizes{3, 9, 17, 2};
    const Mlp mlp(sizes, activation);
    const std::size_t n_rows = 5;
    std::vector<float> parameters = random_floats(mlp.n_parameters(), 4);
    for (float& p : parameters) p *= 0.5f;
    const std::vector<float> x = random_floats(n_rows * 3, 5), w = random_floats(n_rows * 2, 6);
    MlpMemory memory;
    const Matrix& output = mlp.forward(parameters.data(), x.data(), n_rows, &memory);
    const std::vector<double> exact(parameters.begin(), parameters.end());
    double sum = 0.0;
    for (std::size_t i = 0; i < output.size(); ++i) sum += output.data()[i] * w[i];
    CHECK(std::abs(sum - weighted_output(sizes, activation, exact, x, w, n_rows)) < 1e-4);

    std::vector<float> gradient(mlp.n_parameters()), x_grad(x.size()), output_grad = w;
    mlp.backward(parameters.data(), x.data(), n_rows, output_grad.data(), gradient.data(),
                 x_grad.data(), &memory);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      std::vector<double> up = exact, down = exact;
      up[i] += 1e-6;
      down[i] -= 1e-6;
      const double slope = (weighted_output(sizes, activation, up, x, w, n_rows) -
                            weighted_output(sizes, activation, down, x, w, n_rows)) /
                           2e-6;
      CHECK(std::abs(gradient[i] - slope) < 1e-4);
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      std::vector<float> up = x, down = x;
      up[i] += 1e-3f;
      down[i] -= 1e-3f;
      const double slope = (weighted_output(sizes, activation, exact, up, w, n_rows) -
                            weighted_output(sizes, activation, exact, down, w, n_rows)) /
                           (static_cast<double>(up[i]) - down[i]);
      CHECK(std::abs(x_grad[i] - slope) < 1e-2);
    }
  }
}

}  // namespace

int main() {
  test_products_are_those_of_plain_loops();
  test_tanh_is_that_of_the_library();
  test_gradients_are_those_of_differences();
  return 0;
}
