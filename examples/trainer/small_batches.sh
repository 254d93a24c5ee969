#!/bin/sh
# Why synchronized statistics matter: trains a model on the bundled digits by
# four replicas with 1, 2, 4, 8 and 16 samples each, with synchronized and with
# local batch norm, and draws held-out accuracy against samples per replica.
#
#   small_batches.sh FOLDER-OF-PROGRAMS OUTPUT-FOLDER [MODEL [SEEDS [EPOCHS]]]
#
# leaves small_batches.csv and small_batches.svg in the output folder. MODEL is
# resnet or cnn: the mlp cannot be trained locally with one sample a replica. The
# programs are syncnorm-train and syncnorm-small-batches-chart, in
# build/cpu/examples/trainer after `scripts/train.sh` and
# `cmake --build build/cpu --target syncnorm-small-batches-chart`.
set -eu

if [ $# -lt 2 ] || [ $# -gt 5 ]; then
  echo "usage: $0 FOLDER-OF-PROGRAMS OUTPUT-FOLDER" \
    "[MODEL=resnet [SEEDS=5 [EPOCHS=15]]]" >&2
  exit 2
fi
programs=$1
out=$2
model=${3:-resnet}
seeds=${4:-5}
epochs=${5:-15}
replicas=4

if [ "$model" = mlp ]; then
  echo "$0: MODEL: expected cnn or resnet, found mlp: with one sample a" \
    "replica, local batch norm would have one value a channel" >&2
  exit 2
fi

for number in "$seeds" "$epochs"; do
  case $number in
  '' | *[!0-9]* | 0*)
    echo "$0: SEEDS, EPOCHS: expected a number from 1, found \"$number\"" >&2
    exit 2
    ;;
  esac
done

for program in syncnorm-train syncnorm-small-batches-chart; do
  if [ ! -x "$programs/$program" ]; then
    echo "$programs/$program: expected a program, found none" >&2
    exit 1
  fi
done

mkdir -p "$out"
csv=$out/small_batches.csv
log=$out/small_batches.log
echo "norm,samples,seed,accuracy" > "$csv"

for samples in 1 2 4 8 16; do
  batch=$((samples * replicas))
  # The rate of 0.05 for a batch of 64, in proportion.
  rate=$(echo "$batch" | awk '{ print 0.05 * $1 / 64 }')
  for norm in sync local; do
    for seed in $(seq "$seeds"); do
      "$programs/syncnorm-train" --devices="cpu*$replicas" \
        --model="$model" --norm="$norm" --batch="$batch" --lr="$rate" \
        --seed="$seed" --epochs="$epochs" > "$log"
      accuracy=$(awk '/^held-out accuracy/ { print $3 }' "$log")
      echo "$norm,$samples,$seed,$accuracy" >> "$csv"
    done
  done
done
rm "$log"

"$programs/syncnorm-small-batches-chart" "$csv" "$out/small_batches.svg"
