package plan_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain sets the number of cases of each property, and the seed of those that make test
// tries, unless the command line sets them.
func TestMain(m *testing.M) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"rapid.checks": propertyCases, "rapid.seed": propertySeed} {
		if !given[name] {
			_ = flag.Set(name, value) // valid numbers
		}
	}
	os.Exit(m.Run())
}
