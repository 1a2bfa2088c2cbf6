package slurm

import (
	"context"
	"errors"
	"fmt"

	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// installedVersion returns the version of Slurm that the control host has installed.
func (c *control) installedVersion(ctx context.Context) (cli.Version, error) {
	c.installed.mu.Lock()
	defer c.installed.mu.Unlock()
	if c.installed.version != "" {
		return c.installed.version, nil
	}
	version, err := c.version(ctx, profile.Slurmctld)
	if err == nil {
		c.installed.version = version
	}
	return version, err
}

// tools returns the queries for the Slurm that the control host has installed. A version
// that Berth does not run is an error.
func (c *control) tools(ctx context.Context) (*cli.Tools, error) {
	version, err := c.installedVersion(ctx)
	if err != nil {
		return nil, err
	}
	tools, err := version.Tools()
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", c.host.Name(), err)
	}
	return tools, nil
}

// version returns the installed version of a daemon on a host.
func (s site) version(ctx context.Context, daemon string) (cli.Version, error) {
	res, err := s.do(ctx, versionOp(daemon))
	if err != nil {
		return "", err
	}
	return answer(s, cli.Installed(daemon), res[0])
}

// versionOp asks for the installed version of a daemon.
func versionOp(daemon string) runtimes.Op {
	q := cli.Installed(daemon)
	return runtimes.Op{Run: &runtimes.Run{Program: q.Program, Args: q.Args, TimeoutMS: int(localTimeout.Milliseconds()), AllowExit: true}}
}

// checkVersion compares the version that a worker has installed with the declared one.
// A unit that declares none is not compared.
func (s site) checkVersion(ctx context.Context, i *schema.EffectiveUnit) error {
	if i.SoftwareVersion == "" {
		return nil
	}
	found, err := s.version(ctx, profile.Slurmd)
	return s.compareVersion(profile.Slurmd, found, err, i)
}

// checkVersion compares the version that the control host has installed with the declared one.
func (c *control) checkVersion(ctx context.Context, i *schema.EffectiveUnit) error {
	if i.SoftwareVersion == "" {
		return nil
	}
	found, err := c.installedVersion(ctx)
	return c.compareVersion(profile.Slurmctld, found, err, i)
}

// compareVersion compares the version of a daemon on a host, or the error in place of it, with
// the one that the instance's AppVersion declares.
func (s site) compareVersion(daemon string, found cli.Version, err error, i *schema.EffectiveUnit) error {
	if err != nil {
		return fmt.Errorf("AppVersion %s/%s needs Slurm %s: %w", i.App, i.Version, i.SoftwareVersion, err)
	}
	if found.Is(i.SoftwareVersion) {
		return nil
	}
	return fmt.Errorf("host %s: %s %s is installed, and AppVersion %s/%s declares %s: install Slurm %[6]s on the host, or let the "+
		"instance name an AppVersion that declares %[3]s",
		s.host.Name(), daemon, found, i.App, i.Version, i.SoftwareVersion)
}

// otherVersion returns how an installed version differs from the declared one, from what
// checkVersion returned. A host that does not answer has no difference: its daemons are reported
// as well.
func otherVersion(ctx context.Context, err error) string {
	if op := new(runtimes.OpError); err == nil || errors.Is(err, runtimes.ErrUnreachable) || errors.As(err, &op) || ctx.Err() != nil {
		return ""
	}
	return err.Error()
}
