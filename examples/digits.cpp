// Trains the network of digits.py from C++, and saves what it learnt:
//
//     graphc compile digits.py:step digits.py:predict -o build/libdigits.so --kind hpp
//     c++ -std=c++17 -O2 digits.cpp -I build -L build -ldigits -Wl,-rpath,'$ORIGIN' -o build/digits
//     gzip -dc digits.csv.gz > build/digits.csv
//     build/digits build/digits.csv [digits.state]
#include <cstdio>
#include <exception>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "libdigits.hpp"

namespace {

constexpr int pixels = 64, held_out = 599, batch = 32, epochs = 30;

struct Images {
  std::vector<float> x;  // [n, pixels]
  std::vector<int64_t> y;

  Images() = default;
  explicit Images(const char *path) {
    std::ifstream file(path);
    float value;
    char comma;
    while (file >> value) {
      for (int k = 0; k < pixels; k++) {
        x.push_back(value);
        file >> comma >> value;
      }
      y.push_back(static_cast<int64_t>(value));
    }
    if (y.size() <= held_out) throw std::runtime_error(std::string("no images in ") + path);
  }

  /* The images [begin, end) of an order, side by side. */
  Images take(const int *begin, const int *end) const {
    Images some;
    for (; begin != end; ++begin) {
      const auto row = x.begin() + *begin * pixels;
      some.x.insert(some.x.end(), row, row + pixels);
      some.y.push_back(y[static_cast<std::size_t>(*begin)]);
    }
    return some;
  }
  int64_t count() const { return static_cast<int64_t>(y.size()); }
};

/* Marsaglia's xorshift64 and Fisher and Yates's shuffle, as in digits.py. */
void shuffle(int *begin, int *end) {
  static uint64_t s = 1;
  for (auto i = end - begin - 1; i > 0; i--) {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    std::swap(begin[i], begin[(s >> 33) % static_cast<uint64_t>(i + 1)]);
  }
}

double accuracy(const graphc::digits::Model &model, const Images &images) {
  std::vector<int64_t> answers(images.y.size());
  model.predict(images.x, answers, images.count());
  int right = 0;
  for (std::size_t i = 0; i < answers.size(); i++) right += answers[i] == images.y[i];
  return 100.0 * right / static_cast<double>(answers.size());
}

void run(const char *data, const char *saved) {
  const Images images(data);
  std::vector<int> order(images.y.size());
  std::iota(order.begin(), order.end(), 0);
  int *const train = order.data() + held_out, *const end = order.data() + order.size();
  shuffle(order.data(), end);

  graphc::digits::Model model;  // the weights as they were at export
  for (int epoch = 1; epoch <= epochs; epoch++) {
    double total = 0;
    shuffle(train, end);
    for (int *i = train; i < end; i += batch) {
      const Images some = images.take(i, end - i < batch ? end : i + batch);
      float loss;
      model.step(some.x, some.y, loss, some.count());
      total += static_cast<double>(loss) * static_cast<double>(some.count());
    }
    if (epoch % 10 == 0)
      std::printf("epoch %d: loss %.6f\n", epoch, total / static_cast<double>(end - train));
  }
  std::printf("test accuracy: %.1f%%\n", accuracy(model, images.take(order.data(), train)));
  if (saved != nullptr) model.save(saved);
}

}  // namespace

int main(int argc, char **argv) {
  try {
    run(argc > 1 ? argv[1] : "digits.csv", argc > 2 ? argv[2] : nullptr);
  } catch (const std::exception &e) {
    std::fprintf(stderr, "digits: %s\n", e.what());
    return 1;
  }
}
