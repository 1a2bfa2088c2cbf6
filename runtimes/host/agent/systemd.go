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

const unitDir = "/etc/systemd/system"

// systemctlProgram is replaced by tests.
var systemctlProgram = "/usr/bin/systemctl"

var unitName = regexp.MustCompile(`\A[A-Za-z0-9_-]{1,64}\z`)

// file returns the name of the service's unit file.
func (systemd) file(s service) (string, error) {
	name := "berth-" + s.name
	if s.unit != "" {
		name += "-" + s.unit
	}
	if !unitName.MatchString(strings.TrimPrefix(name, "berth-")) {
		return "", refuse("service %s: the name is not valid for a systemd unit", plain(s.String()))
	}
	return name + ".service", nil
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
	return unitState(out), nil
}

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
func unitState(out string) runtimes.ServiceStatus {
	var st runtimes.ServiceStatus
	values := properties(out)
	st.Running = values["ActiveState"] == "active"
	st.PID, _ = strconv.Atoi(values["MainPID"])
	if p, ok := lookProcess(st.PID); ok && st.Running {
		st.Since = p.since()
	}
	if !st.Running {
		st.PID = 0
	}
	return st
}

func (d systemd) start(ctx context.Context, s service) (bool, error) {
	name, err := d.file(s)
	if err != nil {
		return false, err
	}
	st, err := d.state(ctx, s)
	if err != nil || st.Running {
		return false, err
	}
	if err := ownUnitFile(filepath.Join(unitDir, name)); err != nil {
		return false, err
	}
	p, err := open(filepath.Join(unitDir, name))
	if err != nil {
		return false, err
	}
	defer p.close()
	text := []byte(unitText(s))
	same, err := p.same(text, 0o644, os.Geteuid(), os.Getegid())
	if err == nil && !same {
		if err = p.replace(text, 0o644, os.Geteuid(), os.Getegid()); err == nil {
			_, err = systemctl(ctx, "daemon-reload")
		}
	}
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if _, err := systemctl(ctx, "enable", "--now", name); err != nil {
		return true, explain(s, err, "")
	}
	return true, nil
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
	ctx, cancel := context.WithTimeout(ctx, s.timeout+2*time.Second)
	defer cancel()
	if kill {
		if _, err := systemctl(ctx, "kill", "--signal=SIGKILL", name); err != nil && st.Running {
			return true, err
		}
	}
	if _, err := systemctl(ctx, "disable", "--now", name); err != nil {
		return true, err
	}
	if err := removeFile(path); err != nil {
		return true, err
	}
	_, err = systemctl(ctx, "daemon-reload")
	return true, err
}

func systemctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, systemctlProgram, args...)
	cmd.Env = baseEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", &Fault{Code: CodeIO, Message: fmt.Sprintf("systemctl %s: %v: %s", strings.Join(args, " "), err, bounded(out))}
	}
	return string(out), nil
}

// unitText renders the unit file of a service, always in the same way.
func unitText(s service) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(unitHeader)
	line("[Unit]")
	line("Description=Berth: %s", s)
	line("After=network-online.target")
	line("")
	line("[Service]")
	if s.spec.Forks {
		line("Type=forking")
		line("PIDFile=%s", s.spec.PIDFile)
	} else {
		line("Type=exec")
		if s.spec.LogFile != "" {
			line("StandardOutput=append:%s", s.spec.LogFile)
			line("StandardError=inherit")
		}
	}
	if s.spec.User != "" {
		line("User=%s", s.spec.User)
	}
	for _, env := range append(append([]string{}, s.spec.Env...), s.mark()) {
		line("Environment=%s", unitWord(env))
	}
	for _, d := range s.spec.RunDirs {
		words := fmt.Sprintf("-d -m %04o", d.Mode)
		if d.Owner != "" {
			words += " -o " + d.Owner
		}
		if d.Group != "" {
			words += " -g " + d.Group
		}
		line("ExecStartPre=+/usr/bin/install %s %s", words, unitWord(d.Path))
	}
	for _, l := range s.spec.Links {
		line("ExecStartPre=+/usr/bin/ln -sfnT %s %s", unitWord(l.Target), unitWord(l.Path))
	}
	words := unitWord(s.spec.Path)
	for _, arg := range s.spec.Args {
		words += " " + unitWord(arg)
	}
	line("ExecStart=%s", words)
	// Only the daemon is stopped; processes that it started, such as jobs, continue.
	line("KillMode=process")
	line("TimeoutStopSec=%d", int(s.timeout.Seconds()))
	line("Restart=on-failure")
	line("RestartSec=2")
	line("LimitNOFILE=131072")
	line("TasksMax=infinity")
	line("")
	line("[Install]")
	line("WantedBy=multi-user.target")
	return b.String()
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
	return &Fault{Code: CodeForeign, Message: foreignPath(name)}
}
