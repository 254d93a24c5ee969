# Prints the ratios of the CUDA benchmark's output as a table, a line for each
# shape, dtype and layout.
/ \([0-9, ]+\) [a-z0-9]+ channels_[a-z]+: (copy|libtorch) / {
  open = index($0, " (")
  kernel = substr($0, 1, open - 1)
  sub(/[ ,].*/, "", kernel)
  rest = substr($0, open + 1)
  colon = index(rest, ": ")
  line = substr(rest, 1, colon - 1)
  sub(/ channels_/, " ", line)
  $0 = substr(rest, colon + 2) # what, ours, theirs, unit, ratio, goal
  column = kernel " " $1
  if (!(line in seen)) {
    seen[line]
    lines[++rows] = line
  }
  if (!(column in seen)) {
    seen[column]
    kernels[++columns] = kernel
    whats[columns] = $1
    names[columns] = column
  }
  text = sprintf("%.2f", $5)
  if ($6 == "reported") text = "(" text ")"
  else if (/NOT MET$/) text = text "<" $7
  cells[line, column] = text
}
function put(text, cells_wide) {
  out = out sprintf("%" cells_wide * width "s", text)
}
function start_line(text) { out = sprintf("%-34s", text) }
function end_line() { sub(/ +$/, "", out); print out }
END {
  if (!rows) exit
  print "behind \"<\": the goal that was missed; in parentheses: there is no goal"
  width = 17 # of a kernel, less where another column shares its name
  for (i = 2; i <= columns; ++i)
    if (kernels[i] == kernels[i - 1]) width = 10
  start_line("speed over that of a copy and of")
  for (i = 1; i <= columns; ++i) {
    if (kernels[i] == kernels[i + 1]) continue
    put(kernels[i], kernels[i] == kernels[i - 1] ? 2 : 1)
  }
  end_line()
  start_line("libtorch, [N, C, H, W]")
  for (i = 1; i <= columns; ++i) put(whats[i], 1)
  end_line()
  for (r = 1; r <= rows; ++r) {
    start_line(lines[r])
    for (i = 1; i <= columns; ++i) {
      text = cells[lines[r], names[i]]
      put(text == "" ? "-" : text, 1)
    }
    end_line()
  }
}
