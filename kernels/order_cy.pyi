from fastpack.kernels.order_np import draw_samples as draw_samples
from fastpack.kernels.order_np import feistel as feistel
from fastpack.kernels.order_np import legacy_shuffle as legacy_shuffle
from fastpack.kernels.order_np import seed_generator as seed_generator
from fastpack.kernels.order_np import shuffle as shuffle
from fastpack.kernels.order_np import stdlib_shuffle as stdlib_shuffle
