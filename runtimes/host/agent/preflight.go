package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/runtimes"
)

// preflight lists all conflicts at once, before anything is written.
func (a *Agent) preflight(ctx context.Context, op *runtimes.Preflight) error {
	for _, p := range op.Paths {
		if err := a.allow.check(p); err != nil {
			return err
		}
	}
	paths := slices.Clone(op.Paths)
	var found []string
	for _, one := range op.Services {
		spec, err := a.serviceSpec(&one)
		if err != nil {
			return err
		}
		obstacles, err := a.services.obstacles(ctx, service{name: one.Name, unit: one.Unit, spec: spec})
		if err != nil {
			return err
		}
		found = append(found, obstacles...)
		for _, t := range serviceTargets(spec) {
			if !t.shared {
				paths = append(paths, t.path)
			}
		}
	}
	foreign, err := a.foreignPaths(paths)
	if err != nil {
		return err
	}
	var unique []string
	for _, what := range append(found, foreign...) {
		if !slices.Contains(unique, what) {
			unique = append(unique, what)
		}
	}
	if len(unique) == 0 {
		return nil
	}
	return &Fault{Code: CodeForeign, Message: bounded([]byte(strings.Join(unique, "; ")))}
}

// foreignPaths describes those of paths that exist and that Berth did not make.
func (a *Agent) foreignPaths(paths []string) ([]string, error) {
	rec, err := a.readPaths()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, p := range paths {
		there, err := exists(p)
		if err != nil {
			return nil, err
		}
		if there && !rec.has(p) {
			found = append(found, foreignPath(p))
		}
	}
	return found, nil
}

func (d daemons) obstacles(_ context.Context, s service) ([]string, error) {
	stop := ""
	if unit := s.spec.DistributionUnit; unit != "" {
		if _, err := os.Lstat("/etc/init.d/" + unit); err == nil {
			stop = "service " + unit + " stop"
		}
	}
	return foreignDaemons(s, stop), nil
}

// foreignDaemons describes processes of this host, outside containers, that run the
// program of a service and that Berth did not start. stop is the command that ends
// them; empty: kill with the process id.
func foreignDaemons(s service, stop string) []string {
	if s.spec.DistributionUnit == "" {
		return nil
	}
	here, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil
	}
	var found []string
	for _, p := range processesThat(func(p process) bool { return p.executes(s.spec.Path) && !p.isBerths() }) {
		if ns, err := os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/ns/pid"); err != nil || ns != here {
			continue
		}
		command := stop
		if command == "" {
			command = "kill " + strconv.Itoa(p.pid)
		}
		found = append(found, fmt.Sprintf("%s (process %d) runs and was not started by Berth; run `%s`, then try again", filepath.Base(s.spec.Path), p.pid, command))
	}
	return found
}

func (d systemd) obstacles(ctx context.Context, s service) ([]string, error) {
	var found []string
	if file, err := d.file(s); err != nil {
		return nil, err
	} else if err := ownUnitFile(filepath.Join(unitDir, file)); err != nil {
		found = append(found, faultOf(err).Message)
	}
	unit := s.spec.DistributionUnit
	if unit == "" {
		return found, nil
	}
	stop := "systemctl disable --now " + unit
	out, err := systemctl(ctx, "show", "--property=ActiveState,UnitFileState", unit+".service")
	if err != nil {
		return nil, err
	}
	if state := unitObstacle(out); state != "" {
		return append(found, fmt.Sprintf("%s.service of the distribution is %s; run `%s`, then try again", unit, state, stop)), nil
	}
	return append(found, foreignDaemons(s, "")...), nil
}

// unitObstacle returns the conflict with a distribution's unit from the output of
// `systemctl show`, or "". An enabled unit conflicts at the next boot.
func unitObstacle(out string) string {
	var active, enabled bool
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "ActiveState":
			active = value != "inactive" && value != "failed" && value != ""
		case "UnitFileState":
			enabled = value == "enabled" || value == "enabled-runtime"
		}
	}
	switch {
	case active && enabled:
		return "running and enabled"
	case active:
		return "running"
	case enabled:
		return "enabled"
	}
	return ""
}

// unitHeader is the first line of every unit file of berth-host.
const unitHeader = "# Written by berth-host; it goes when the service does."

// ownUnitFile refuses a unit file that berth-host did not write.
func ownUnitFile(name string) error {
	b, err := os.ReadFile(name)
	switch {
	case os.IsNotExist(err):
		return nil
	case err != nil:
		return ioFault(name, err)
	case strings.HasPrefix(string(b), unitHeader+"\n"):
		return nil
	}
	return &Fault{Code: CodeForeign, Message: foreignPath(name)}
}
