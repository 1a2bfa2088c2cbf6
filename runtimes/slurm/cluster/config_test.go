package cluster

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

var update = flag.Bool("update", false, "rewrite config.cue")

const optionsTitle = "\n// The rest of this file is generated from the table of parameters: go test ./runtimes/slurm/cluster\n// -run " +
	"TestOptionsAreThoseOfTheTable -update writes it again.\n\n"

// The definition of the options has the rows of the table of parameters.
func TestOptionsAreThoseOfTheTable(t *testing.T) {
	const name = "config.cue"
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	own, generated, _ := strings.Cut(string(data), optionsTitle)
	want := optionsCUE()
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(own+want), 0o644))
		return
	}
	require.Equal(t, want, optionsTitle+generated)
}

// The definition takes the same names as berth-host.
func TestConfigHasTheNamesOfTheHelper(t *testing.T) {
	data, err := os.ReadFile("config.cue")
	require.NoError(t, err)
	require.Contains(t, string(data), `"^`+profile.NameForm+`$"`)
}

// The table has a column for each release that Berth runs.
func TestTableHasTheReleasesOfTheAdapter(t *testing.T) {
	var runs []string
	for _, r := range cli.Releases() {
		if r.Tools != nil {
			runs = append(runs, r.Series)
		}
	}
	require.Equal(t, runs, profile.Series())
}

// optionsCUE returns the definition of the options, from the table of parameters.
func optionsCUE() string {
	var fields, says strings.Builder
	for _, p := range profile.Options() {
		v := p.Allowed
		fmt.Fprintf(&fields, "\t// %s\n\t%s?: ", p.Meaning, p.Name)
		switch {
		case v.IsNumber():
			fmt.Fprintf(&fields, "int & >=%d & <=%d\n", v.Low, v.High)
		case v.Form != "":
			pattern := strconv.Quote("^(" + v.Form + ")$")
			fmt.Fprintf(&fields, "=~%s\n", pattern)
			if v.List {
				fmt.Fprintf(&says, "#Says: %s: %q\n", pattern, v.String())
			}
		default:
			fmt.Fprintf(&fields, "\"%s\"\n", strings.Join(v.Words, `" | "`))
		}
	}
	return optionsTitle + "// #Options are further parameters of slurm.conf.\n#Options: {\n" + fields.String() + "}\n" + says.String()
}
