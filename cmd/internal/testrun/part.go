package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"berth/examples/explore"
)

// drawTests returns the pattern of one in part of the tests that match pattern. drawn says how
// many they are.
func drawTests(ctx context.Context, part int, binaries []binary, pattern string) (drawing, drawn string, err error) {
	seed, err := explore.SeedOfRun()
	if err != nil {
		return "", "", err
	}
	var all []string
	for _, b := range binaries {
		names, err := b.list(ctx, pattern)
		if err != nil {
			return "", "", err
		}
		all = append(all, names...)
	}
	names := drawNames(seed, part, all)
	return "^(" + strings.Join(names, "|") + ")$", fmt.Sprintf("%d of %d tests, drawn by the seed %d", len(names), len(all), seed), nil
}

// drawNames returns one in part of the tests. Each test is drawn by some seed.
func drawNames(seed uint64, part int, all []string) (names []string) {
	for _, name := range all {
		h := fnv.New64a()
		fmt.Fprint(h, seed, " ", name)
		if h.Sum64()%uint64(part) == 0 {
			names = append(names, name)
		}
	}
	return names
}
