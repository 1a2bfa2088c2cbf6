package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"slices"
	"strings"

	"berth/examples/explore"
)

// drawTests returns the arguments of go test that run one in part of the tests of args: of
// those of its -run, or of all. drawn says how many they are.
func drawTests(ctx context.Context, part int, args []string) (drawing []string, drawn string, err error) {
	seed, err := explore.SeedOfRun()
	if err != nil {
		return nil, "", err
	}
	from := "^Test"
	if i := slices.Index(args, "-run"); i >= 0 && i+1 < len(args) {
		from, args = args[i+1], slices.Concat(args[:i], args[i+2:])
	}
	list := exec.CommandContext(ctx, "go", append([]string{"test", "-vet=off", "-list", from}, args...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, "", fmt.Errorf("go test -list: %w", err)
	}
	names, all := drawNames(seed, part, string(out))
	drawn = fmt.Sprintf("%d of %d tests, drawn by the seed %d", len(names), all, seed)
	return append([]string{"-run", "^(" + strings.Join(names, "|") + ")$"}, args...), drawn, nil
}

// drawNames returns one in part of the tests that go test -list printed, and how many there
// are. Each test is drawn by some seed.
func drawNames(seed uint64, part int, listed string) (names []string, all int) {
	for line := range strings.Lines(listed) {
		name := strings.TrimSpace(line)
		if !strings.HasPrefix(name, "Test") {
			continue
		}
		all++
		h := fnv.New64a()
		fmt.Fprint(h, seed, " ", name)
		if h.Sum64()%uint64(part) == 0 {
			names = append(names, name)
		}
	}
	return names, all
}
