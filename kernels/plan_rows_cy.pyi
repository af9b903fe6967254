from fastpack.kernels.plan_rows_np import read_rows as read_rows
