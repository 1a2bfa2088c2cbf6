package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/runtimes"
)

// systemd runs each service as a unit with a unit file, which exists and is enabled
// while the service should run.
type systemd struct{}

// These are replaced by tests.
var (
	unitDir          = "/etc/systemd/system"
	systemctlProgram = "/usr/bin/systemctl"
)

var unitName = regexp.MustCompile(`\A[A-Za-z0-9_-]{1,64}\z`)

// file returns the name of the service's unit file.
func (systemd) file(s service) (string, error) {
	name := unitFile(runtimes.ServiceName{Name: s.name, Unit: s.unit})
	if !unitName.MatchString(strings.TrimSuffix(strings.TrimPrefix(name, "berth-"), ".service")) {
		return "", refuse("service %s: the name is not valid for a systemd unit", plain(s.String()))
	}
	return name, nil
}

func unitFile(n runtimes.ServiceName) string {
	if n.Unit == "" {
		return "berth-" + n.Name + ".service"
	}
	return "berth-" + n.Name + "-" + n.Unit + ".service"
}

func (d systemd) state(ctx context.Context, s service) (runtimes.ServiceStatus, error) {
	var st runtimes.ServiceStatus
	name, err := d.file(s)
	if err != nil {
		return st, err
	}
	out, err := systemctl(ctx, "show", "--property=ActiveState,MainPID", name)
	if err != nil {
		return st, err
	}
	st = unitState(name, out)
	if _, err := os.Lstat(filepath.Join(unitDir, name)); os.IsNotExist(err) {
		st.Outdated = st.Running
		return st, nil
	}
	for _, f := range unitFiles(name, s) {
		have, err := os.ReadFile(filepath.Join(unitDir, f.name))
		if err != nil && !os.IsNotExist(err) {
			return st, ioFault(f.name, err)
		}
		st.Outdated = st.Outdated || string(have) != f.text
	}
	return st, nil
}

// namedText is a file below unitDir.
type namedText struct{ name, text string }

// unitFiles returns the unit file of a service, and the settings of its scopes.
func unitFiles(name string, s service) []namedText {
	files := []namedText{{name, unitText(s)}}
	for _, scope := range s.spec.Unit.Scopes {
		files = append(files, namedText{scopeFile(scope), scopeText})
	}
	return files
}

// scopeFile returns the file of settings that systemd adds to those of a scope.
func scopeFile(scope string) string { return filepath.Join(scope+".d", "berth.conf") }

// scopeText are the settings of scopes, whose processes run jobs.
const scopeText = unitHeader + `
[Unit]
# A scope that failed would keep its name, and the daemon could not make it again.
CollectMode=inactive-or-failed

[Scope]
# A job that exceeds its memory does not end the others (systemd 253 and newer).
OOMPolicy=continue
# By SIGTERM at a reboot, jobs would fail, and report that while the network is up. Killed
# ones are queued again, and the reboot need not wait for them.
KillSignal=SIGKILL
`

// properties parses the output of `systemctl show`.
func properties(out string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = value
	}
	return values
}

// unitState reads the output of `systemctl show` for a unit.
func unitState(name, out string) runtimes.ServiceStatus {
	var st runtimes.ServiceStatus
	values := properties(out)
	st.Running = values["ActiveState"] == "active"
	st.PID, _ = strconv.Atoi(values["MainPID"])
	if p, ok := lookProcess(st.PID); ok && st.Running {
		st.Since = p.since()
	}
	if !st.Running {
		st.PID = 0
		if state := values["ActiveState"]; state != "inactive" { // the same at each restart, as a status is compared
			st.Detail = fmt.Sprintf("its unit is %s, and `journalctl --unit %s` shows why", state, name)
		}
	}
	return st
}

func (d systemd) start(ctx context.Context, s service) (bool, error) {
	name, err := d.file(s)
	if err != nil {
		return false, err
	}
	changed := false
	for _, f := range unitFiles(name, s) {
		wrote, err := writeUnit(f)
		if err != nil {
			return false, err
		}
		changed = changed || wrote
	}
	st, err := d.state(ctx, s)
	if err != nil {
		return false, err
	}
	if st.Running {
		if changed { // settings such as Restart count at once, the others at the next start
			_, err = systemctl(ctx, "daemon-reload")
		}
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	// The verb makes systemd read the units again, which takes seconds on a slow host.
	if _, err := systemctl(ctx, "enable", "--now", name); err != nil {
		return true, explain(s, err, "")
	}
	return true, nil
}

// writeUnit writes a file that differs.
func writeUnit(f namedText) (changed bool, err error) {
	name, text := filepath.Join(unitDir, f.name), f.text
	if err := ownUnitFile(name); err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return false, ioFault(name, err)
	}
	p, err := open(name)
	if err != nil {
		return false, err
	}
	defer p.close()
	same, err := p.same([]byte(text), 0o644, os.Geteuid(), os.Getegid())
	if err != nil || same {
		return false, err
	}
	return true, p.replace([]byte(text), 0o644, os.Geteuid(), os.Getegid())
}

func (d systemd) stop(ctx context.Context, s service, kill bool) (bool, error) {
	name, err := d.file(s)
	if err != nil {
		return false, err
	}
	st, err := d.state(ctx, s)
	if err != nil {
		return false, err
	}
	path := filepath.Join(unitDir, name)
	if _, err := os.Lstat(path); os.IsNotExist(err) && !st.Running {
		return false, nil
	}
	if err := ownUnitFile(path); err != nil {
		return false, err
	}
	// systemd itself ends the daemon within the timeout (TimeoutStopSec); the rest is for
	// systemctl on a slow host.
	ctx, cancel := context.WithTimeout(ctx, 2*s.timeout)
	defer cancel()
	if kill {
		if _, err := systemctl(ctx, "kill", "--kill-whom=main", "--signal=SIGKILL", name); err != nil && st.Running {
			return true, err
		}
	}
	if _, err := systemctl(ctx, "disable", "--now", "--no-reload", name); err != nil {
		return true, err
	}
	if err := removeFile(path); err != nil {
		return true, err
	}
	if _, err := systemctl(ctx, "daemon-reload"); err != nil {
		return true, err
	}
	_, _ = systemctl(ctx, "reset-failed", name) // it is not loaded unless it failed
	return true, nil
}

// endScopes ends the scopes that a daemon made, and removes their settings. They outlive
// it: their processes are not in its unit and do not have its environment.
func (systemd) endScopes(ctx context.Context, s service) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	changed := false
	for _, scope := range s.spec.Unit.Scopes {
		for {
			out, err := systemctl(ctx, "show", "--property=ActiveState", scope)
			if err != nil {
				return changed, err
			}
			if state := properties(out)["ActiveState"]; state == "inactive" || state == "failed" {
				break
			}
			changed = true
			// Not by SIGTERM, which the processes may ignore until systemd kills them after 90 s:
			// the daemon that needed them has ended. A scope ends with its last process.
			if _, err := systemctl(ctx, "kill", "--signal=SIGKILL", scope); err != nil {
				time.Sleep(poll) // it may have ended just now
			}
		}
	}
	removed, err := removeScopeFiles(s)
	if err != nil || !removed {
		return changed, err
	}
	_, err = systemctl(ctx, "daemon-reload")
	return true, err
}

func removeScopeFiles(s service) (removed bool, err error) {
	for _, scope := range s.spec.Unit.Scopes {
		name := filepath.Join(unitDir, scopeFile(scope))
		if _, err := os.Lstat(name); os.IsNotExist(err) {
			continue
		}
		if err := ownUnitFile(name); err != nil {
			return removed, err
		}
		if err := removeFile(name); err != nil {
			return removed, err
		}
		removed = true
		_ = os.Remove(filepath.Dir(name)) // an administrator may have a file there, too
	}
	return removed, nil
}

func systemctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, systemctlProgram, args...)
	cmd.Env = baseEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", &Fault{Code: runtimes.CodeIO, Message: fmt.Sprintf("systemctl %s: %v: %s", strings.Join(args, " "), err, bounded(out))}
	}
	return string(out), nil
}

// unitText renders the unit file of a service, always in the same way. It does not depend
// on the timeout of a request.
func unitText(s service) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	unit := s.spec.Unit
	first := "network-online.target"
	for _, n := range unit.After {
		first += " " + unitFile(n)
	}
	line(unitHeader)
	line("[Unit]")
	line("Description=Berth: %s", s)
	line("Wants=%s", first)
	line("After=%s", first)
	line("StartLimitIntervalSec=0") // a missing dependency may return at any time
	line("")
	line("[Service]")
	switch {
	case s.spec.Forks:
		line("Type=forking")
		line("PIDFile=%s", s.spec.PIDFile)
	case unit.Notify:
		line("Type=notify")
	default:
		line("Type=exec")
	}
	if !s.spec.Forks && s.spec.LogFile != "" {
		line("StandardOutput=append:%s", s.spec.LogFile)
		line("StandardError=inherit")
	}
	if s.spec.User != "" {
		line("User=%s", s.spec.User)
	}
	for _, env := range append(append([]string{}, s.spec.Env...), s.mark()) {
		line("Environment=%s", unitWord(env))
	}
	for _, command := range startCommands(s) {
		line("%s", command)
	}
	// A slow start has not failed. The request that starts it has a timeout of its own.
	line("TimeoutStartSec=infinity")
	if unit.NeverKill {
		line("TimeoutStopSec=infinity")
	}
	if unit.RunsJobs {
		for _, setting := range []string{
			"KillMode=process", "Restart=always",
			"Delegate=yes",       // without it the first start after a boot fails under control groups of version 2
			"OOMPolicy=continue", // a job that exceeds its memory does not stop the daemon
			"LimitMEMLOCK=infinity", "LimitSTACK=infinity",
		} {
			line("%s", setting)
		}
	} else {
		line("Restart=on-failure")
	}
	line("RestartSec=2")
	line("LimitNOFILE=131072")
	line("TasksMax=infinity")
	line("")
	line("[Install]")
	line("WantedBy=multi-user.target")
	return b.String()
}

// startCommands returns the lines of the commands of a start. Directories and links of
// /run are made by commands, as systemd removes a RuntimeDirectory at each stop, and the
// directory may be shared with other programs.
func startCommands(s service) []string {
	var out []string
	for _, d := range s.spec.RunDirs {
		words := fmt.Sprintf("-d -m %04o", d.Mode)
		if d.Owner != "" {
			words += " -o " + d.Owner
		}
		if d.Group != "" {
			words += " -g " + d.Group
		}
		out = append(out, fmt.Sprintf("ExecStartPre=+/usr/bin/install %s %s", words, unitWord(d.Path)))
	}
	for _, l := range s.spec.Links {
		out = append(out, fmt.Sprintf("ExecStartPre=+/usr/bin/ln -sfnT %s %s", unitWord(l.Target), unitWord(l.Path)))
	}
	if len(s.spec.Devices) > 0 { // it prints those that are missing
		words := ""
		for _, d := range s.spec.Devices {
			words += " " + unitWord(d)
		}
		out = append(out, "ExecStartPre=/usr/bin/stat --printf="+words)
	}
	words := unitWord(s.spec.Path)
	for _, arg := range s.spec.Args {
		words += " " + unitWord(arg)
	}
	out = append(out, "ExecStart="+words)
	if s.spec.Unit.Ready != "" {
		out = append(out, "ExecStartPost=/usr/bin/bash -c "+unitWord(s.spec.Unit.Ready))
	}
	return out
}

// unitWord quotes a word of a unit file (systemd.syntax(7)), so that it has no
// specifier, variable or second word.
func unitWord(w string) string {
	plain := w != ""
	for i := range len(w) {
		c := w[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_=./:,+@", rune(c)) {
			plain = false
		}
	}
	if plain {
		return w
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(w) {
		switch c := w[i]; {
		case c == '%' || c == '$':
			b.WriteByte(c)
			b.WriteByte(c)
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (d systemd) obstacles(ctx context.Context, s service) ([]string, error) {
	var found []string
	if file, err := d.file(s); err != nil {
		return nil, err
	} else {
		for _, f := range unitFiles(file, s) {
			if err := ownUnitFile(filepath.Join(unitDir, f.name)); err != nil {
				found = append(found, faultOf(err).Message)
			}
		}
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
	values := properties(out)
	active := !slices.Contains([]string{"", "inactive", "failed"}, values["ActiveState"])
	enabled := slices.Contains([]string{"enabled", "enabled-runtime"}, values["UnitFileState"])
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
	return &Fault{Code: runtimes.CodeForeign, Message: foreignPath(name)}
}
