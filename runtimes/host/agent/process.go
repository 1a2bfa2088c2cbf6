package agent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/runtimes"

	"golang.org/x/sys/unix"
)

// process is a process in /proc.
type process struct {
	pid   int
	state byte   // Z: zombie
	start uint64 // clock ticks after boot; unique together with pid
	// ending: the process exits. It releases its memory, after which its program is
	// unknown, before other resources such as ports.
	ending bool
}

// lookProcess reads a process. It returns false for a missing one or a zombie.
func lookProcess(pid int) (process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The command is in parentheses and may contain any character.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return process{}, false
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return process{}, false
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	flags, _ := strconv.ParseUint(f[6], 10, 64)
	const exiting = 0x4 // PF_EXITING
	p := process{pid: pid, state: f[0][0], start: start, ending: flags&exiting != 0}
	return p, err == nil && p.state != 'Z' && p.state != 'X'
}

// runs reports whether the process runs the program at path, as its executable or as
// a script.
func (p process) runs(path string) bool {
	if p.executes(path) {
		return true
	}
	comm, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/comm")
	name := filepath.Base(path)
	return err == nil && strings.TrimSpace(string(comm)) == name[:min(len(name), 15)]
}

// executes reports whether the program at path is the process's executable. A process
// cannot fake it, unlike its name.
func (p process) executes(path string) bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/exe")
	if err != nil {
		return false
	}
	real, err := filepath.EvalSymlinks(path)
	return err == nil && strings.TrimSuffix(exe, " (deleted)") == real
}

// environ returns the entries of the environment that the process was started with.
func (p process) environ() []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
	if err != nil {
		return nil
	}
	return strings.Split(string(b), "\x00")
}

// carries reports whether the process was started with entry in its environment.
func (p process) carries(entry string) bool { return slices.Contains(p.environ(), entry) }

// isForeign reports whether the process runs and was not started as a service of Berth. The
// kernel shows no environment for a moment while a program begins or ends, so an empty
// one is read again.
func (p process) isForeign() bool {
	for range 50 {
		if env := p.environ(); len(env) > 1 || len(env) == 1 && env[0] != "" {
			return !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "BERTH_SERVICE=") })
		}
		if !p.alive() {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

// uids returns the user ids of the process.
func (p process) uids() (ids []int) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/status")
	if err != nil {
		return nil // it has ended
	}
	for line := range strings.Lines(string(status)) {
		words, ok := strings.CutPrefix(line, "Uid:")
		for _, word := range strings.Fields(words) {
			if id, err := strconv.Atoi(word); ok && err == nil {
				ids = append(ids, id)
			}
		}
		if ok {
			break
		}
	}
	return ids
}

// since returns the start time of the process.
func (p process) since() time.Time {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "btime "); ok {
			if boot, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil {
				const tick = time.Second / 100 // USER_HZ, the same on every Linux
				return time.Unix(boot, 0).Add(time.Duration(p.start) * tick).UTC().Truncate(time.Second)
			}
		}
	}
	return time.Time{}
}

// alive reports whether this process exists, not a later one with the same id.
func (p process) alive() bool {
	now, ok := lookProcess(p.pid)
	return ok && now.start == p.start
}

// signal sends sig to this process. It is not an error if the process has ended.
func (p process) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err == nil {
		defer unix.Close(fd)
		if !p.alive() { // the id may have been reused before the open
			return nil
		}
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	} else if p.alive() { // a kernel without pidfd
		err = unix.Kill(p.pid, sig)
	}
	if err == unix.ESRCH {
		return nil
	}
	return err
}

// end ends processes with SIGTERM, unless kill is set, and with SIGKILL after the
// timeout. As with systemd, SIGCONT follows SIGTERM, as a stopped process handles nothing
// else (systemd.kill(5)).
func end(ctx context.Context, list []process, kill bool, timeout time.Duration) error {
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if kill && sig == unix.SIGTERM {
			continue
		}
		for _, p := range list {
			err := p.signal(sig)
			if err == nil && sig == unix.SIGTERM {
				err = p.signal(unix.SIGCONT)
			}
			if err != nil {
				return &Fault{Code: runtimes.CodeIO, Message: fmt.Sprintf("process %d: %v", p.pid, err)}
			}
		}
		for deadline := time.Now().Add(timeout); ; time.Sleep(poll) {
			list = slices.DeleteFunc(slices.Clone(list), func(p process) bool { return !p.alive() })
			if len(list) == 0 {
				return nil
			}
			if ctx.Err() != nil || time.Now().After(deadline) {
				break
			}
		}
		timeout = 2 * time.Second
	}
	return &Fault{Code: runtimes.CodeTimeout, Message: fmt.Sprintf("process %d still exists after SIGKILL", list[0].pid)}
}

// processesWith finds the processes that run path and carry entry.
func processesWith(path, entry string) []process {
	return processesThat(func(p process) bool { return p.runs(path) && p.carries(entry) })
}

// processesThat finds the processes that match. It finds none if /proc is unreadable.
func processesThat(match func(process) bool) []process {
	found, _ := scanProcesses(match)
	return found
}

// scanProcesses finds the processes that match.
func scanProcesses(match func(process) bool) ([]process, error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, ioFault("/proc", err)
	}
	var found []process
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil {
			continue
		}
		if p, ok := lookProcess(pid); ok && match(p) {
			found = append(found, p)
		}
	}
	return found, nil
}

// pidFile reads the process id in a pid file. It returns 0 for a missing or invalid
// file.
func pidFile(name string) int {
	f, err := openPlain(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	b := make([]byte, 32)
	n, _ := f.Read(b)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil || pid <= 1 {
		return 0
	}
	return pid
}

// poll is the interval of checks during a start or stop.
const poll = 5 * time.Millisecond

// baseEnv is the environment of a program or daemon, without the variables of its
// profile.
func baseEnv() []string {
	return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "HOME=/"}
}
