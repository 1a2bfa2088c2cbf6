package loop_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more tests at a time than there are cores, because most of them wait
// for a poll, a retry or a push. The flag -parallel overrides this.
func TestMain(m *testing.M) {
	flag.Parse()
	isSet := false
	flag.Visit(func(f *flag.Flag) { isSet = isSet || f.Name == "test.parallel" })
	if !isSet {
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
