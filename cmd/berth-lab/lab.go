package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/runtimes/host/lab"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// labDir is the default of --dir.
const labDir = "/var/lib/berth-lab"

func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", labDir, "directory of the lab's keys and host list")
}

func newUpCmd() *cobra.Command {
	var (
		dir, helper   string
		image, images string
		only          []string
		machines      int
	)
	cmd := &cobra.Command{
		Use:   "up [ESTATE]",
		Short: "Start the hosts; an existing lab is replaced",
		Example: `  berth-lab up examples/lab
  berth-lab up examples/lab --node dev-lab-1,dev-gpu-1
  berth-lab up examples/lab --image trixie
  berth-lab up examples/lab --machines 2`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := labNodes(cmd.Context(), append(args, ".")[0], only)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("machines") {
				if nodes, err = firstNodes(nodes, machines); err != nil {
					return err
				}
			}
			if helper, err = program(helper, "berth-host"); err != nil {
				return err
			}
			if dir, err = filepath.Abs(dir); err != nil {
				return err
			}
			start := time.Now()
			if images, err = filepath.Abs(images); err != nil {
				return err
			}
			l, err := lab.Up(cmd.Context(), lab.Config{
				Dir: dir, Helper: helper, Nodes: nodes, Image: image, Images: images, Packages: slurmtest.Packages(),
				Machines: machines > 0,
				Log:      slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d hosts are up after %.1f s.\n\n", len(nodes), time.Since(start).Seconds())
			return new(cli.Output).Print(cmd.OutOrStdout(), reportOf(l))
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().StringVar(&helper, "helper", "", "berth-host binary (default: beside berth-lab)")
	cmd.Flags().StringVar(&image, "image", "",
		fmt.Sprintf("Debian suite of the hosts: %s (default: this machine's own system; of machines: %s)", strings.Join(lab.Suites(), ", "),
			lab.Suites()[0]))
	imagesFlag(cmd, &images)
	cmd.Flags().StringSliceVar(&only, "node", nil, "start only these nodes")
	cmd.Flags().IntVar(&machines, "machines", 0,
		"start this number of nodes, those without GPUs first, as emulated machines with systemd; a boot takes minutes")
	return cmd
}

func newImageCmd() *cobra.Command {
	var (
		images   string
		machines bool
	)
	cmd := &cobra.Command{
		Use:   "image SUITE",
		Short: "Build the image of a Debian suite, so that `up` finds it",
		Example: `  berth-lab image trixie
  berth-lab image bookworm --machines`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			images, err := filepath.Abs(images)
			if err != nil {
				return err
			}
			build := lab.BuildImage
			if machines {
				build = lab.BuildMachineImage
			}
			_, err = build(cmd.Context(), images, args[0], slurmtest.Packages(), slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
			return err
		},
	}
	imagesFlag(cmd, &images)
	cmd.Flags().BoolVar(&machines, "machines", false, "build the image of emulated machines")
	return cmd
}

func imagesFlag(cmd *cobra.Command, images *string) {
	cmd.Flags().StringVar(images, "images", lab.DefaultImages,
		"directory in which images are kept; "+lab.MirrorVariable+" names their mirror")
}

func newDownCmd() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "Remove the hosts and everything on them",
		Example: `  berth-lab down`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := openLab(dir)
			if errors.Is(err, os.ErrNotExist) {
				fmt.Fprintf(cmd.OutOrStdout(), "No lab in %s.\n", dir)
				return nil
			}
			if err != nil {
				return err
			}
			if err := l.Down(cmd.Context()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d hosts removed.\n", len(l.Nodes))
			return nil
		},
	}
	dirFlag(cmd, &dir)
	return cmd
}

func newStatusCmd() *cobra.Command {
	var dir string
	var output cli.Output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the hosts and how to log in; exit 1 if one is not up",
		Example: `  berth-lab status
  berth-lab status -o json | jq -r '.hosts[] | .name + " " + .address'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := openLab(dir)
			if errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("no lab in %s; start one with berth-lab up ESTATE", dir)
			}
			if err != nil {
				return err
			}
			r := reportOf(l)
			err = output.Print(cmd.OutOrStdout(), r)
			if err == nil && slices.ContainsFunc(r.Hosts, func(h labHost) bool { return h.State != "up" }) {
				err = cli.Exit(1)
			}
			return err
		},
	}
	dirFlag(cmd, &dir)
	output.Flag(cmd)
	return cmd
}

// firstNodes returns n of the nodes: those without GPUs first, so that a controller is
// among them, then by name.
func firstNodes(nodes []lab.Node, n int) ([]lab.Node, error) {
	if n < 1 || n > len(nodes) {
		return nil, fmt.Errorf("--machines %d: want 1 to %d, the number of nodes", n, len(nodes))
	}
	slices.SortFunc(nodes, func(a, b lab.Node) int {
		return cmp.Or(cmp.Compare(min(len(a.Devices), 1), min(len(b.Devices), 1)), strings.Compare(a.Name, b.Name))
	})
	return nodes[:n], nil
}

// labReport is the JSON of `berth-lab status`.
type labReport struct {
	Format     string    `json:"format"`          // berth.lab/v1
	Image      string    `json:"image,omitempty"` // Debian suite of the hosts
	Hosts      []labHost `json:"hosts"`
	User       string    `json:"user"` // Berth's login
	Key        string    `json:"key"`
	KnownHosts string    `json:"known_hosts"`
	LoginKey   string    `json:"login_key"` // for root, used by users
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

func reportOf(l *lab.Lab) labReport {
	r := labReport{"berth.lab/v1", l.Image, []labHost{}, l.User(), l.KeyFile(), l.KnownHosts(), l.LoginKeyFile()}
	for _, s := range l.Status() {
		state := "down"
		switch {
		case s.Answers:
			state = "up"
		case s.Up:
			state = "up, sshd does not answer"
		}
		r.Hosts = append(r.Hosts, labHost{s.Name, fmt.Sprint(s.Address), state, s.Processes, s.Devices})
	}
	return r
}

// Text implements cli.Report: a row for each host, and the logins of users and of
// Berth.
func (r labReport) Text(p *cli.Page) error {
	t := p.Table("HOST", "ADDRESS", "STATE", "PROCESSES", "DEVICES")
	for _, h := range r.Hosts {
		t.Row(h.Name, h.Address, h.State, fmt.Sprint(h.Processes), strings.Join(h.Devices, " "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p, `
Log in as root:

    ssh -F none -i %s -o UserKnownHostsFile=%s root@%s

For berth.yaml:

    ssh:
      user: %s
      key: %s
      known_hosts: %s
`, r.LoginKey, r.KnownHosts, r.Hosts[0].Address, r.User, r.Key, r.KnownHosts)
	return err
}

// labNodes returns the nodes of the estate in a directory, as hosts: all of them, or
// only those named.
func labNodes(ctx context.Context, dir string, only []string) ([]lab.Node, error) {
	r, err := localestate.Load(ctx, dir)
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
		return nil, fmt.Errorf("no node declared in %s; give the directory of an estate, such as examples/lab", dir)
	}
	return nodes, nil
}
