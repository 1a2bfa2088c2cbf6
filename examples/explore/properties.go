package explore

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// RunProperties runs the tests of a package whose properties use rapid, for its TestMain. Each
// property tries the given number of random cases from the seed, unless flags of rapid on the
// command line say otherwise. It returns the exit status.
func RunProperties(m *testing.M, cases int, seed uint64) int {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(cases), "rapid.seed": strconv.FormatUint(seed, 10)} {
		if given[name] {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			fmt.Fprintf(os.Stderr, "flag -%s: %v\n", name, err)
			return 2
		}
	}
	return m.Run()
}

// MustSeedOfRun is SeedOfRun for a TestMain. It panics where BERTH_SEED is not a number.
func MustSeedOfRun() uint64 {
	seed, err := SeedOfRun()
	if err != nil {
		panic(err)
	}
	return seed
}
