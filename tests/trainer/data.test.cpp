#include "trainer/input/cifar10.hpp"
#include "trainer/input/dataset.hpp"
#include "trainer/input/idx.hpp"

#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <array>
#include <cmath>

using namespace syncnorm::train;

namespace {

const std::filesystem::path digits = SYNCNORM_DIGITS;

bytes idx_header(std::initializer_list<std::uint8_t> sizes) {
  bytes result{0, 0, 8, static_cast<std::uint8_t>(sizes.size())};
  for (auto size : sizes)
    for (auto byte : {std::uint8_t{0}, std::uint8_t{0}, std::uint8_t{0}, size})
      result.push_back(byte);
  return result;
}

/// Three images of 2 x 2 with the labels 7, 0, 9, as the test wants them.
struct tiny_idx {
  scratch_folder folder;
  bytes images = idx_header({3, 2, 2});
  bytes labels = idx_header({3});

  tiny_idx() {
    for (std::uint8_t i = 0; i < 12; ++i)
      images.push_back(i);
    for (std::uint8_t label : {7, 0, 9})
      labels.push_back(label);
  }

  labelled_images load() const {
    write_bytes(folder / "images", images);
    write_bytes(folder / "labels", labels);
    return load_idx(folder / "images", folder / "labels");
  }

  std::string message() const {
    return message_of([this] { (void) load(); });
  }
};

void gzip(const std::filesystem::path& from, const std::filesystem::path& to) {
  auto text = read_text(from);
  auto* file = gzopen(to.c_str(), "wb");
  REQUIRE(file);
  REQUIRE(gzwrite(file, text.data(), static_cast<unsigned>(text.size()))
          == static_cast<int>(text.size()));
  REQUIRE(gzclose(file) == Z_OK);
}

bytes cifar_record(std::uint8_t label, std::uint8_t pixel) {
  bytes result(3073, pixel);
  result[0] = label;
  return result;
}

} // namespace

TEST_CASE("images and labels come out of IDX files as they went in") {
  tiny_idx files;
  auto images = files.load();
  CHECK(images.size() == 3);
  CHECK(images.shape == image_shape{1, 2, 2});
  CHECK(images.labels == bytes{7, 0, 9});
  CHECK(images.image(2)[1] == 9);
}

TEST_CASE("a wrong magic number is refused with file, offset and both values") {
  tiny_idx files;
  files.images[3] = 1;
  CHECK(contains(files.message(),
                 "images: offset 0: expected the magic number 00 00 08 03"));
  CHECK(contains(files.message(), "found 00 00 08 01"));
  for (std::size_t at : {0U, 1U, 2U}) {
    tiny_idx others;
    others.images[at] = 9;
    CHECK(contains(others.message(), "expected the magic number 00 00 08 03"));
  }
}

TEST_CASE("a file that ends too soon is refused with what is missing") {
  tiny_idx files;
  files.images.pop_back();
  CHECK(contains(files.message(),
                 "images: offset 16: expected 12 bytes (3 images of 2 x 2), "
                 "found 11 bytes"));
  files.images.resize(6);
  CHECK(contains(files.message(), "images: offset 4: expected 4 bytes"));
}

TEST_CASE("a file that goes on after its data is refused") {
  tiny_idx files;
  files.labels.push_back(1);
  CHECK(contains(files.message(), "labels: offset 11: expected the end of the "
                                  "file, found 1 more bytes"));
  files.images.push_back(1);
  CHECK(contains(files.message(), "images: offset 28: expected the end of the "
                                  "file, found 1 more bytes"));
}

TEST_CASE("a count that lies costs no memory") {
  tiny_idx files;
  files.images[4] = 0xff;
  CHECK(contains(files.message(), "images: offset 16: expected 171127603"));
}

TEST_CASE("images without rows or columns, or with far too many, are refused") {
  for (std::size_t at : {8U, 12U})
    for (std::uint8_t top : {0, 1}) {
      tiny_idx files;
      files.images[at] = top;
      files.images[at + 3] = 0;
      CHECK(contains(files.message(), "images: offset " + std::to_string(at)
                                          + ": expected the number of "));
    }
}

TEST_CASE("images with as many rows as there may be are read") {
  tiny_idx files;
  files.images = idx_header({1, 0, 1});
  files.images[10] = 0x40;
  files.images.resize(16 + 16384);
  files.labels = idx_header({1});
  files.labels.push_back(3);
  CHECK(files.load().shape == image_shape{1, 16384, 1});
}

TEST_CASE("parts of different shape, or without an image, are no data set") {
  auto some = tiny_idx{}.load();
  auto wide = some;
  wide.shape = {1, 1, 4};
  CHECK(message_of([&] { (void) make_dataset(some, wide, "digits"); })
        == "digits: expected held-out images of 2 x 2, as the training images, "
           "found 1 x 4");
  labelled_images none;
  none.shape = some.shape;
  CHECK(message_of([&] { (void) make_dataset(some, none); })
        == "data set: expected training and held-out images, found 3 and 0");
  CHECK(contains(message_of([&] { (void) make_dataset(none, some); }),
                 "found 0 and 3"));
}

TEST_CASE("a label of 10 or more is refused at its offset") {
  tiny_idx files;
  files.labels[9] = 10;
  CHECK(contains(files.message(),
                 "labels: offset 9: expected a label below 10, found 10"));
}

TEST_CASE("different numbers of images and labels are refused") {
  tiny_idx files;
  files.labels[7] = 2;
  CHECK(contains(files.message(), "labels: offset 4: expected 3 labels"));
  CHECK(contains(files.message(), "found 2"));
  files.labels[7] = 4;
  files.labels.push_back(1);
  CHECK(contains(files.message(), "labels: offset 4: expected 3 labels"));
}

TEST_CASE("the bundled digits are complete, plain and as gzip files") {
  auto plain = load_dataset(digits);
  CHECK(plain->training.size() == 1437);
  CHECK(plain->held_out.size() == 360);
  CHECK(plain->training.shape == image_shape{1, 8, 8});
  scratch_folder folder;
  for (const auto* part : {"train", "t10k"})
    for (const auto* name : {"-images-idx3-ubyte", "-labels-idx1-ubyte"})
      gzip(digits / (part + std::string{name}),
           folder / (part + std::string{name} + ".gz"));
  auto packed = load_dataset(folder.path());
  CHECK(packed->training.pixels == plain->training.pixels);
  CHECK(packed->held_out.labels == plain->held_out.labels);
  CHECK(packed->fingerprint == plain->fingerprint);
}

TEST_CASE("mean and deviation are those of all training pixels") {
  auto data = load_dataset(digits);
  long double sum = 0;
  for (auto x : data->training.pixels)
    sum += x;
  auto count = static_cast<long double>(data->training.pixels.size());
  auto mean = sum / count;
  long double squares = 0;
  for (auto x : data->training.pixels)
    squares += (x - mean) * (x - mean);
  // Two formulas in double and long double: rounding of a few units in 1e-16.
  CHECK(data->mean.at(0) == doctest::Approx(double(mean)).epsilon(1e-13));
  CHECK(data->deviation.at(0)
        == doctest::Approx(double(sqrtl(squares / count))).epsilon(1e-13));
}

TEST_CASE("a gzip file that was cut off or damaged is refused") {
  scratch_folder folder;
  gzip(digits / "t10k-images-idx3-ubyte", folder / "packed");
  auto text = read_text(folder / "packed");
  // As zlib ends the name that its own text begins with.
  auto images = folder / "a: b" / "images";
  std::filesystem::create_directory(images.parent_path());
  auto load = [&](std::string content) {
    write_bytes(images, {content.begin(), content.end()});
    return message_of(
        [&] { (void) load_idx(images, digits / "t10k-labels-idx1-ubyte"); });
  };
  auto cut = load(text.substr(0, text.size() / 2));
  CHECK(contains(cut, "images: offset "));
  CHECK(contains(cut, "expected more data, found: "));
  CHECK_FALSE(contains(cut, "found: b/images"));
  text[text.size() / 2] ^= 0x55;
  auto damaged = load(text);
  CHECK(contains(damaged, "images: offset "));
}

TEST_CASE(
    "a gzip file may have several members, and nothing else behind them") {
  tiny_idx files;
  auto plain = files.load();
  scratch_folder folder;
  auto packed = [&](std::size_t begin, std::size_t end) {
    write_bytes(folder / "part", {files.images.begin() + std::ptrdiff_t(begin),
                                  files.images.begin() + std::ptrdiff_t(end)});
    gzip(folder / "part", folder / "packed");
    return read_text(folder / "packed");
  };
  auto load = [&](const std::string& content) {
    write_bytes(folder / "images", {content.begin(), content.end()});
    return load_idx(folder / "images", files.folder / "labels");
  };
  auto size = files.images.size();
  auto two = packed(0, 11) + packed(11, 11) + packed(11, size);
  CHECK(load(two).pixels == plain.pixels);
  for (const std::string more : {"x", "\x1f", "garbage"}) {
    auto text = message_of([&] { (void) load(two + more); });
    CHECK(text
          == (folder / "images").string()
                 + ": expected the end of the file behind the gzip data, found "
                 + std::to_string(more.size()) + " more bytes");
  }
  auto cut = two.substr(0, two.size() - 1);
  CHECK(contains(message_of([&] { (void) load(cut); }),
                 "images: offset 28: expected more data, found: unexpected end "
                 "of file"));
}

TEST_CASE("what is no file is refused by what it is, and a pipe that nobody "
          "writes to is not waited for") {
  scratch_folder folder;
  std::filesystem::create_directory(folder / "folder");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0666) == 0);
  auto load = [&](const std::string& name) {
    auto labels = digits / "t10k-labels-idx1-ubyte";
    return message_of([&] { (void) load_idx(folder / name, labels); });
  };
  CHECK(load("pipe")
        == (folder / "pipe").string()
               + ": expected a file, found a named pipe");
  CHECK(load("folder").ends_with("folder: expected a file, found a folder"));
  CHECK(load("none").ends_with("none: cannot be opened: No such file or "
                               "directory"));
  // A file, of whose first bytes nothing is there.
  CHECK(load("/proc/self/mem")
        == "/proc/self/mem: offset 0: expected more data, found: Input/output "
           "error");
}

TEST_CASE("CIFAR-10's records come out as they went in") {
  scratch_folder folder;
  auto two = cifar_record(3, 17);
  auto other = cifar_record(9, 255);
  two.insert(two.end(), other.begin(), other.end());
  write_bytes(folder / "a.bin", two);
  write_bytes(folder / "b.bin", cifar_record(0, 1));
  std::array files{folder / "a.bin", folder / "b.bin"};
  auto images = load_cifar10(files);
  CHECK(images.labels == bytes{3, 9, 0});
  CHECK(images.shape == image_shape{3, 32, 32});
  CHECK(images.image(1)[3071] == 255);
  CHECK(images.image(2)[0] == 1);
}

TEST_CASE("of a folder of CIFAR-10's files all are read, and each channel has "
          "a mean and a deviation of its own") {
  scratch_folder folder;
  for (std::uint8_t i = 1; i <= 5; ++i) {
    auto record = cifar_record(i, 0);
    std::fill(record.begin() + 1025, record.begin() + 2049,
              static_cast<std::uint8_t>(10 * i));
    std::fill(record.begin() + 2049, record.end(), std::uint8_t{7});
    write_bytes(folder / ("data_batch_" + std::to_string(i) + ".bin"), record);
  }
  write_bytes(folder / "test_batch.bin", cifar_record(9, 1));
  auto data = load_dataset(folder.path());
  CHECK(data->training.labels == bytes{1, 2, 3, 4, 5});
  CHECK(data->held_out.labels == bytes{9});
  CHECK(data->mean == std::vector<double>{0, 30, 7});
  // Where all pixels are equal it is 1.
  CHECK(data->deviation == std::vector<double>{1, std::sqrt(200.0), 1});
}

TEST_CASE("a CIFAR-10 file that ends in a record or has a label of 10 or more "
          "is refused") {
  scratch_folder folder;
  auto load = [&](const bytes& data) {
    write_bytes(folder / "a.bin", data);
    std::array files{folder / "a.bin"};
    return message_of([&] { (void) load_cifar10(files); });
  };
  auto data = cifar_record(1, 0);
  data.resize(3073 + 5);
  CHECK(contains(load(data), "a.bin: offset 3073: expected 3073 bytes (record "
                             "1), found 5 bytes"));
  CHECK(contains(load({}), "a.bin: offset 0: expected 3073 bytes"));
  CHECK(contains(load(cifar_record(10, 0)),
                 "a.bin: offset 0: expected a label below 10, found 10"));
  // As a gzip file begins, but for the second byte.
  CHECK(contains(load(cifar_record(31, 0)), "expected a label below 10"));
  data = cifar_record(1, 0);
  auto other = cifar_record(10, 0);
  data.insert(data.end(), other.begin(), other.end());
  CHECK(contains(load(data), "a.bin: offset 3073: expected a label below 10"));
}

TEST_CASE("a folder without a data set is refused by name") {
  scratch_folder folder;
  auto empty = message_of([&] { (void) load_dataset(folder.path()); });
  CHECK(contains(empty, folder.path().string()));
  CHECK(contains(empty, "found neither"));
  auto missing = message_of([&] { (void) load_dataset(folder / "none"); });
  CHECK(contains(missing, "none: expected a folder"));
  write_bytes(folder / "train-images-idx3-ubyte", {});
  auto partial = message_of([&] { (void) load_dataset(folder.path()); });
  CHECK(contains(partial, "train-labels-idx1-ubyte"));
}
