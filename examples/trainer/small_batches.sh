#!/bin/sh
# Why synchronized statistics matter: trains a model on the bundled digits by
# four replicas with 1, 2, 4, 8 and 16 samples each, with synchronized and with
# local batch norm, and draws held-out accuracy against samples per replica.
#
#   small_batches.sh FOLDER-OF-PROGRAMS OUTPUT-FOLDER [MODEL [SEEDS [EPOCHS]]]
#
# leaves small_batches.csv and small_batches.svg in the output folder.
set -eu

programs=$1
out=$2
model=${3:-resnet}
seeds=${4:-5}
epochs=${5:-15}
replicas=4

mkdir -p "$out"
csv=$out/small_batches.csv
echo "norm,samples,seed,accuracy" > "$csv"

for samples in 1 2 4 8 16; do
  batch=$((samples * replicas))
  # The rate of 0.05 for a batch of 64, in proportion.
  rate=$(echo "$batch" | awk '{ print 0.05 * $1 / 64 }')
  for norm in sync local; do
    for seed in $(seq "$seeds"); do
      accuracy=$("$programs/syncnorm-train" --devices="cpu*$replicas" \
        --model="$model" --norm="$norm" --batch="$batch" --lr="$rate" \
        --seed="$seed" --epochs="$epochs" |
        awk '/^held-out accuracy/ { print $3 }')
      echo "$norm,$samples,$seed,$accuracy" >> "$csv"
    done
  done
done

"$programs/syncnorm-small-batches-chart" "$csv" "$out/small_batches.svg"
