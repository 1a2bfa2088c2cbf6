package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"berth/runtimes/host/lab"
	"berth/schema"
	"berth/schema/load"
)

// labDir is where a lab keeps its keys unless --dir says otherwise.
const labDir = "/var/lib/berth-lab"

func newLabCmd() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "a real lab on this machine: network-namespace hosts with sshd",
		Long: `Makes one host on this machine for each Node of an estate: with an address, a name,
processes, accounts, files and GPU devices of its own, an sshd and berth-host. What
a host changes is kept in memory and goes with it. Needs root.`,
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", labDir, "where the lab keeps its keys and host list")
	cmd.AddCommand(newLabUpCmd(&dir), newLabDownCmd(&dir), newLabStatusCmd(&dir))
	return cmd
}

func newLabUpCmd(dir *string) *cobra.Command {
	var (
		helper string
		only   []string
	)
	cmd := &cobra.Command{
		Use:   "up [ESTATE]",
		Short: "bring the hosts up; a lab that is there already is made anew",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			estate := "."
			if len(args) > 0 {
				estate = args[0]
			}
			nodes, err := labNodes(cmd, estate, only)
			if err != nil {
				return &exitError{1, err}
			}
			if helper == "" {
				self, err := os.Executable()
				if err != nil {
					return &exitError{1, err}
				}
				helper = filepath.Join(filepath.Dir(self), "berth-host")
			}
			abs, err := filepath.Abs(*dir)
			if err != nil {
				return &exitError{1, err}
			}
			start := time.Now()
			l, err := lab.Up(cmd.Context(), lab.Config{Dir: abs, Helper: helper, Nodes: nodes, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				return &exitError{1, err}
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%d hosts are up after %.1f s.\n\n", len(nodes), time.Since(start).Seconds())
			printHosts(out, l)
			printAccess(out, l)
			return nil
		},
	}
	cmd.Flags().StringVar(&helper, "helper", "", "berth-host binary (default: beside this one)")
	cmd.Flags().StringSliceVar(&only, "node", nil, "only these nodes")
	return cmd
}

func newLabDownCmd(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "take the hosts away; nothing is left of them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := openLab(*dir)
			if errors.Is(err, os.ErrNotExist) {
				fmt.Fprintf(cmd.OutOrStdout(), "There is no lab in %s.\n", *dir)
				return nil
			}
			if err != nil {
				return &exitError{1, err}
			}
			if err := l.Down(cmd.Context()); err != nil {
				return &exitError{1, err}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d hosts are gone.\n", len(l.Nodes))
			return nil
		},
	}
}

func newLabStatusCmd(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "how the hosts are and how to log in; exit 1 if one is not up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := openLab(*dir)
			if errors.Is(err, os.ErrNotExist) {
				return &exitError{1, fmt.Errorf("there is no lab in %s; `berth lab up ESTATE` makes one", *dir)}
			}
			if err != nil {
				return &exitError{1, err}
			}
			ok := printHosts(cmd.OutOrStdout(), l)
			printAccess(cmd.OutOrStdout(), l)
			if !ok {
				return &exitError{code: 1}
			}
			return nil
		},
	}
}

func openLab(dir string) (*lab.Lab, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return lab.Open(abs)
}

// printHosts prints a line per host and says whether all are up.
func printHosts(out io.Writer, l *lab.Lab) bool {
	ok := true
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "HOST\tADDRESS\tSTATE\tPROCESSES\tDEVICES")
	for _, s := range l.Status() {
		state := "down"
		switch {
		case s.Answers:
			state = "up"
		case s.Up:
			state = "up, sshd does not answer"
		}
		ok = ok && s.Answers
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", s.Name, s.Address, state, s.Processes, strings.Join(s.Devices, " "))
	}
	_ = w.Flush() // what out cannot take is lost with it
	return ok
}

// printAccess prints how people and Berth get onto the hosts.
func printAccess(out io.Writer, l *lab.Lab) {
	fmt.Fprintf(out, "\nLog in as root:\n\n    ssh -F none -i %s -o UserKnownHostsFile=%s root@%s\n", l.LoginKeyFile(), l.KnownHosts(), l.Nodes[0].Address)
	fmt.Fprintf(out, "\nFor berth.yaml:\n\n    ssh:\n      user: %s\n      key: %s\n      known_hosts: %s\n", l.User(), l.KeyFile(), l.KnownHosts())
}

// labNodes are the nodes of an estate, as hosts.
func labNodes(cmd *cobra.Command, estate string, only []string) ([]lab.Node, error) {
	snap, err := load.Dir(estate)
	if err != nil {
		return nil, err
	}
	loader, err := load.New(load.Options{Backends: backends()})
	if err != nil {
		return nil, err
	}
	r, err := loader.Load(cmd.Context(), snap)
	if err != nil {
		return nil, err
	}
	for _, d := range r.Diagnostics {
		if strings.HasPrefix(d.File, "platform/nodes/") && d.Severity == schema.SeverityError {
			return nil, errors.New(d.String())
		}
	}
	var nodes []lab.Node
	for name, n := range r.Desired.Platform.Nodes {
		if len(only) == 0 || slices.Contains(only, name) {
			nodes = append(nodes, lab.NodeOf(name, n.Spec))
		}
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("%s declares no node: give the directory of an estate, such as examples/lab", estate)
	}
	return nodes, nil
}
