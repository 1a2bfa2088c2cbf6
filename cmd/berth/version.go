package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
)

// The Makefile sets these with -ldflags. Other builds use Go's build information.
var (
	buildVersion string // as git describe says it
	buildCommit  string // 40 hex digits
	buildDate    string // of the commit, RFC 3339
)

// versionReport is the JSON of `berth version`.
type versionReport struct {
	Format   string `json:"format"` // berth.version/v1
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a work tree with changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// versionOf returns the version of this program. info may be nil.
func versionOf(info *debug.BuildInfo) versionReport {
	r := versionReport{
		Format: "berth.version/v1", Version: buildVersion, Commit: buildCommit, Date: buildDate,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info != nil {
		if v := info.Main.Version; v != "(devel)" {
			r.Version = cmp.Or(r.Version, v)
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				r.Commit = cmp.Or(r.Commit, s.Value)
			case "vcs.time":
				r.Date = cmp.Or(r.Date, s.Value)
			case "vcs.modified":
				r.Modified = s.Value == "true"
			}
		}
	}
	r.Modified = r.Modified || strings.HasSuffix(r.Version, "-dirty")
	r.Version = cmp.Or(r.Version, "unknown")
	return r
}

// text is the report in one line.
func (r versionReport) text() string {
	commit := cmp.Or(r.Commit, "unknown")
	if r.Modified {
		commit += ", modified"
	}
	return fmt.Sprintf("berth %s (commit %s, %s, %s, %s)", r.Version, commit, cmp.Or(r.Date, "date unknown"), r.Go, r.Platform)
}

// Text implements cli.Report.
func (r versionReport) Text(p *cli.Page) error {
	_, err := fmt.Fprintln(p, r.text())
	return err
}

func newVersionCmd() *cobra.Command {
	var output cli.Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, its commit, date and Go version",
		Example: `  berth version -o json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			return output.Print(cmd.OutOrStdout(), versionOf(info))
		},
	}
	output.Flag(cmd)
	return cmd
}
