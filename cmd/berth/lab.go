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
		Short: "Run lab hosts on this machine, with network namespaces and sshd",
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
		Short: "Start the hosts; an existing lab is replaced",
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
			if err := printHosts(out, labHosts(l)); err != nil {
				return &exitError{1, err}
			}
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
		Short: "Remove the hosts and everything on them",
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
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the hosts and how to log in; exit 1 if one is not up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := openLab(*dir)
			if errors.Is(err, os.ErrNotExist) {
				return &exitError{1, fmt.Errorf("there is no lab in %s; `berth lab up ESTATE` makes one", *dir)}
			}
			if err != nil {
				return &exitError{1, err}
			}
			hosts := labHosts(l)
			if output == "json" {
				err = writeJSON(cmd.OutOrStdout(), labReport{"berth.lab/v1", hosts, l.User(), l.KeyFile(), l.KnownHosts(), l.LoginKeyFile()})
			} else if err = printHosts(cmd.OutOrStdout(), hosts); err == nil {
				printAccess(cmd.OutOrStdout(), l)
			}
			if err != nil {
				return &exitError{1, err}
			}
			if slices.ContainsFunc(hosts, func(h labHost) bool { return h.State != "up" }) {
				return &exitError{code: 1}
			}
			return nil
		},
	}
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// labReport is what `berth lab status -o json` writes.
type labReport struct {
	Format     string    `json:"format"` // berth.lab/v1
	Hosts      []labHost `json:"hosts"`
	User       string    `json:"user"` // that Berth logs in as
	Key        string    `json:"key"`
	KnownHosts string    `json:"known_hosts"`
	LoginKey   string    `json:"login_key"` // of root, for people
}

type labHost struct {
	Name      string   `json:"name"`
	Address   string   `json:"address"`
	State     string   `json:"state"` // up, down, or up without an answer from sshd
	Processes int      `json:"processes"`
	Devices   []string `json:"devices,omitempty"`
}

func openLab(dir string) (*lab.Lab, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return lab.Open(abs)
}

// labHosts are the hosts of a lab as they are now.
func labHosts(l *lab.Lab) []labHost {
	hosts := []labHost{}
	for _, s := range l.Status() {
		state := "down"
		switch {
		case s.Answers:
			state = "up"
		case s.Up:
			state = "up, sshd does not answer"
		}
		hosts = append(hosts, labHost{s.Name, fmt.Sprint(s.Address), state, s.Processes, s.Devices})
	}
	return hosts
}

// printHosts prints a row for each host.
func printHosts(out io.Writer, hosts []labHost) error {
	t := newTable(out, false, "HOST", "ADDRESS", "STATE", "PROCESSES", "DEVICES")
	for _, h := range hosts {
		if err := t.row(h.Name, h.Address, h.State, fmt.Sprint(h.Processes), strings.Join(h.Devices, " ")); err != nil {
			return err
		}
	}
	return t.flush()
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
