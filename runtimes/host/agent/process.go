package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is a process as /proc shows it.
type process struct {
	pid   int
	state byte   // Z: dead, and not yet waited for
	start uint64 // clock ticks after boot; with pid, it names the process for good
	// ending: it exits, and gives up its memory first, so that one cannot tell
	// what it was, and then what else it holds, such as ports.
	ending bool
}

// lookProcess reads a process; false if there is none or it is a zombie.
func lookProcess(pid int) (process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The command stands in parentheses and may hold anything: read after the last.
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

// runs says whether the process runs the program at path: as its executable, or
// as the script its interpreter was given.
func (p process) runs(path string) bool {
	if p.executes(path) {
		return true
	}
	comm, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/comm")
	name := filepath.Base(path)
	return err == nil && strings.TrimSpace(string(comm)) == name[:min(len(name), 15)]
}

// executes says whether the program at path is the process's executable. No
// process can make that up, unlike its name.
func (p process) executes(path string) bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/exe")
	if err != nil {
		return false
	}
	real, err := filepath.EvalSymlinks(path)
	return err == nil && strings.TrimSuffix(exe, " (deleted)") == real
}

// carries says whether the process was started with entry in its environment.
func (p process) carries(entry string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
	return err == nil && slices.ContainsFunc(bytes.Split(b, []byte{0}), func(e []byte) bool { return string(e) == entry })
}

// since is when the process started.
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

// alive says whether this very process, not a later one of its number, is there.
func (p process) alive() bool {
	now, ok := lookProcess(p.pid)
	return ok && now.start == p.start
}

// signal sends sig to this very process. One that is gone is no error.
func (p process) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err == nil {
		defer unix.Close(fd)
		if !p.alive() { // the number may have been given out again before the open
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

// isBerths says whether the process was started as a service of Berth.
func (p process) isBerths() bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
	return err == nil && slices.ContainsFunc(bytes.Split(b, []byte{0}), func(e []byte) bool { return bytes.HasPrefix(e, []byte("BERTH_SERVICE=")) })
}

// processesWith finds the processes that run path and carry entry.
func processesWith(path, entry string) []process {
	return processesThat(func(p process) bool { return p.runs(path) && p.carries(entry) })
}

// processesThat finds the processes that match.
func processesThat(match func(process) bool) []process {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil
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
	return found
}

// processesOf finds the processes that have uid among their user ids, as what
// they run as or can become again.
func processesOf(uid int) ([]process, error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, ioFault("/proc", err)
	}
	id := strconv.Itoa(uid)
	var found []process
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil {
			continue
		}
		p, ok := lookProcess(pid)
		if !ok {
			continue
		}
		status, err := os.ReadFile("/proc/" + n.Name() + "/status")
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(status)) {
			ids, ok := strings.CutPrefix(line, "Uid:")
			if ok && slices.Contains(strings.Fields(ids), id) {
				found = append(found, p)
			}
		}
	}
	return found, nil
}

// pidFile reads the process a pid file names. 0 if there is no such file or no
// number in it.
func pidFile(name string) int {
	p, err := open(name)
	if err != nil {
		return 0
	}
	defer p.close()
	f, _, err := p.openFile()
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
