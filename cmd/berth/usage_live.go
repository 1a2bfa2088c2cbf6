package main

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/cmd/internal/remote"
)

// usageServer has the flags with which usage asks a daemon.
type usageServer struct {
	server remote.Server
	live   bool
}

func (s *usageServer) flags(cmd *cobra.Command) {
	s.server.Flags(cmd)
	cmd.Flags().Lookup("server").Usage = "`URL` of the daemon to ask for the use until now; with --live, default: $BERTH_SERVER"
	cmd.Flags().BoolVar(&s.live, "live", false, "ask the daemon to read accounting now")
}

// isAsked reports whether the daemon is asked, and not the branch. It refuses flags of the other one.
func (s *usageServer) isAsked(cmd *cobra.Command) (bool, error) {
	names, text := []string{"token-file", "break-glass"}, "usage: --%s is for the daemon; give --server too, or leave it out"
	asked := s.server.URL != "" || s.live
	if asked {
		names, text = []string{"from", "to", "org", "by", "repo", "config", "rev"}, "usage: --%s is for the branch; leave out --server and "+
			"--live, or this flag"
	}
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return asked, cli.Usage(fmt.Errorf(text, name))
		}
	}
	return asked, nil
}

// run prints what a project used until now.
func (s *usageServer) run(cmd *cobra.Command, project string, output *cli.Output) error {
	if output.Form == "csv" {
		return cli.Usage(errors.New("usage: -o csv is for the branch; choose -o json"))
	}
	if project == "" {
		return cli.Usage(errors.New("usage: --project is missing: the daemon answers for one project"))
	}
	place, err := remote.ParseProject(project)
	if err != nil {
		return err
	}
	used := &inspect.LiveUsage{Format: "berth.usage_live/v1"}
	r := remote.Request{Place: place, Path: "usage", Query: withLive(url.Values{}, s.live)}
	if _, err := s.server.Do(cmd.Context(), r, used); err != nil {
		return err
	}
	return output.PrintLong(cmd.OutOrStdout(), used)
}
