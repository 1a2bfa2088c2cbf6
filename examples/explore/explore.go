// Package explore is how tests draw the cases that they try. The seed is the date unless
// BERTH_SEED names one, so that each day explores other cases and each run of a day repeats
// them. BERTH_PART=yes, as .ci/run sets it, tries a part of the cases; otherwise a test tries
// the whole.
//
// It must not know particular tests.
package explore

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	seedVariable = "BERTH_SEED"
	partVariable = "BERTH_PART"
	// targetVariable is the target of the Makefile that runs the test.
	targetVariable = "BERTH_TARGET"
)

// SeedOfRun returns BERTH_SEED, or the day as YYYYMMDD (UTC) where it is not set.
func SeedOfRun() (uint64, error) {
	text := os.Getenv(seedVariable)
	if text == "" {
		text = time.Now().UTC().Format("20060102")
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w; set a whole number", seedVariable, err)
	}
	return seed, nil
}

// Seed returns SeedOfRun. It logs the seed, and where the test fails the command that repeats it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, err := SeedOfRun()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the seed is %d", seed)
	t.Cleanup(func() {
		if t.Failed() {
			target := cmp.Or(os.Getenv(targetVariable), "test-long")
			if target == "test-long" {
				target += " RUN=" + t.Name()
			}
			t.Logf("to repeat it: make %s SEED=%d%s", target, seed, map[bool]string{true: " PART=yes"}[isPart()])
		}
	})
	return seed
}

func isPart() bool { return os.Getenv(partVariable) == "yes" }

// Count returns how many cases a test tries: whole, or part where a part is asked for.
func Count(part, whole int) int {
	if isPart() {
		return part
	}
	return whole
}

// Draw returns all cases, or as many as part says where a part is asked for. The seed draws
// them; their order stays.
func Draw[T any](t testing.TB, part int, cases []T) []T {
	t.Helper()
	seed := Seed(t)
	if !isPart() || part >= len(cases) {
		return cases
	}
	chosen := make([]bool, len(cases))
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(cases))[:part] {
		chosen[i] = true
	}
	var out []T
	for i, c := range cases {
		if chosen[i] {
			out = append(out, c)
		}
	}
	return out
}
