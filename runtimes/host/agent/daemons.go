package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

// daemons runs services as daemons with pid files, without an init system.
type daemons struct {
	accounts    accountFiles
	files       hostFiles
	startTime   time.Duration // Options.StartTime
	replaceTime time.Duration // Options.ReplaceTime
}

// inPIDFile returns the process in the service's pid file, if that lives, runs the program
// and has the mark.
func (daemons) inPIDFile(s service) (process, bool) {
	p, ok := lookProcess(pidFile(s.spec.PIDFile))
	return p, ok && !p.ending && p.runs(s.spec.Path) && p.carries(s.mark())
}

// running returns the service's process. A daemon that replaces itself by a new process
// when it reads its configuration again is not in its pid file for a moment. So while
// another process of the service lives, the pid file is read again.
func (d daemons) running(s service) (process, bool) {
	for deadline := time.Now().Add(d.replaceTime); ; time.Sleep(2 * poll) {
		if p, up := d.inPIDFile(s); up {
			return p, true
		}
		if time.Now().After(deadline) || len(processesWith(s.spec.Path, s.mark())) == 0 {
			return d.inPIDFile(s) // it may have been written since
		}
	}
}

func (d daemons) state(_ context.Context, s service) (runtimes.ServiceStatus, error) {
	p, up := d.running(s)
	if !up {
		return runtimes.ServiceStatus{}, nil
	}
	return runtimes.ServiceStatus{Running: true, PID: p.pid, Since: p.since()}, nil
}

// awaitExit waits for the process in the pid file if it is exiting.
func (daemons) awaitExit(ctx context.Context, s service) error {
	deadline := time.Now().Add(s.timeout)
	for {
		p, ok := lookProcess(pidFile(s.spec.PIDFile))
		if !ok || !p.ending {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return &Fault{Code: runtimes.CodeTimeout, Message: fmt.Sprintf("%s: process %d does not finish exiting", s, p.pid)}
		}
		time.Sleep(poll)
	}
}

func (d daemons) start(ctx context.Context, s service) (bool, error) {
	if _, up := d.running(s); up {
		return false, nil
	}
	if err := d.awaitExit(ctx, s); err != nil {
		return false, err
	}
	if p, ok := lookProcess(pidFile(s.spec.PIDFile)); ok && p.runs(s.spec.Path) {
		return false, refuse("%s: %s names process %d, which Berth did not start: stop the distribution's own service first",
			s, s.spec.PIDFile, p.pid)
	}
	// Leftovers of a killed daemon, and a daemon whose pid file is gone.
	if err := end(ctx, processesWith(s.spec.Path, s.mark()), true, s.timeout); err != nil {
		return false, err
	}
	if err := d.prepare(s); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	out, err := os.CreateTemp("", "berth-start-") // removed in the next line
	if err != nil {
		return false, ioFault("temporary file", err)
	}
	_ = os.Remove(out.Name())
	defer out.Close()
	cmd, err := d.command(s, out)
	if err != nil {
		return false, err
	}
	err = cmd.Start()
	if log, ok := cmd.Stdout.(*os.File); ok && log != out {
		_ = log.Close() // the daemon has its own copy
	}
	if err != nil {
		return false, &Fault{Code: runtimes.CodeIO, Message: fmt.Sprintf("%s: %v", s.spec.Path, err)}
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }() // also reaps it
	if s.spec.Forks {
		err = d.awaitFork(ctx, s, exited)
	} else {
		err = d.awaitStart(ctx, s, cmd.Process.Pid, exited)
	}
	if err != nil {
		return true, explain(s, err, tail(out))
	}
	return true, nil
}

// prepare makes directories and links, which a boot removes from /run.
func (d daemons) prepare(s service) error {
	for _, dir := range s.spec.RunDirs {
		if _, err := d.files.makeDir(&dir); err != nil {
			return err
		}
	}
	for _, l := range s.spec.Links {
		if _, err := link(&l); err != nil {
			return err
		}
	}
	return removeFile(s.spec.PIDFile)
}

// command returns the daemon's command: in its own session, as its account, with the
// environment of the spec only.
func (d daemons) command(s service, out *os.File) (*exec.Cmd, error) {
	cmd := exec.Command(s.spec.Path, s.spec.Args...)
	cmd.Dir = "/"
	cmd.Env = append(baseEnv(), s.spec.Env...)
	cmd.Env = append(cmd.Env, s.mark())
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	uid, gid := os.Geteuid(), os.Getegid()
	if s.spec.User != "" {
		db, err := d.accounts.read()
		if err != nil {
			return nil, err
		}
		u, ok := db.user(s.spec.User)
		if !ok {
			return nil, &Fault{Code: runtimes.CodeNotFound,
				Message: "no account " + s.spec.User + " on this host; is its package installed?"}
		}
		uid, gid = u.uid, u.gid
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: db.supplementary(u.name)}
	}
	if !s.spec.Forks && s.spec.LogFile != "" {
		log, err := openLog(s.spec.LogFile, uid, gid)
		if err != nil {
			return nil, err
		}
		cmd.Stdout, cmd.Stderr = log, log
	}
	return cmd, nil
}

// openLog opens a log for appending. A new one belongs to the daemon.
func openLog(name string, uid, gid int) (*os.File, error) {
	p, err := open(name)
	if err != nil {
		return nil, err
	}
	defer p.close()
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := openat(p.dir, p.name, flags|unix.O_CREAT|unix.O_EXCL, 0o640)
	if err == nil {
		if uid != os.Geteuid() || gid != os.Getegid() {
			err = unix.Fchown(fd, uid, gid)
		}
	} else if err == unix.EEXIST {
		fd, err = openat(p.dir, p.name, flags, 0)
	}
	if err != nil {
		return nil, ioFault(name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// awaitFork waits until the parent has exited and the pid file names the daemon.
func (d daemons) awaitFork(ctx context.Context, s service, exited <-chan error) error {
	select {
	case err := <-exited:
		if err != nil {
			return fmt.Errorf("%s: %w", s.spec.Path, err)
		}
	case <-ctx.Done():
		_ = end(context.WithoutCancel(ctx), processesWith(s.spec.Path, s.mark()), true, time.Second)
		return fmt.Errorf("did not daemonize within %s", s.timeout)
	}
	for n := 0; ; n++ {
		if _, up := d.inPIDFile(s); up {
			return nil
		}
		// Twice, as it may fork again during the first check.
		if n%10 == 9 && len(processesWith(s.spec.Path, s.mark())) == 0 && len(processesWith(s.spec.Path, s.mark())) == 0 {
			return fmt.Errorf("ended right after its start")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("did not write %s within %s", s.spec.PIDFile, s.timeout)
		case <-time.After(poll):
		}
	}
}

func (d daemons) awaitStart(ctx context.Context, s service, pid int, exited <-chan error) error {
	p, err := open(s.spec.PIDFile)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.replace([]byte(strconv.Itoa(pid)+"\n"), 0o644, os.Geteuid(), os.Getegid()); err != nil {
		return err
	}
	select {
	case err := <-exited:
		_ = removeFile(s.spec.PIDFile)
		return fmt.Errorf("ended right after its start: %v", err)
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d.startTime):
		return nil
	}
}

// explain adds the daemon's output and the end of its log to an error.
func explain(s service, err error, printed string) error {
	if why := whyEnded(s.spec); why != "" {
		printed += "\n" + filepath.Base(s.spec.LogFile) + ": " + why
	} else if s.spec.LogFile != "" {
		if f, e := openPlain(s.spec.LogFile); e == nil {
			defer f.Close()
			if log := tail(f); log != "" {
				printed += "\n" + filepath.Base(s.spec.LogFile) + ": " + log
			}
		}
	}
	return &Fault{Code: runtimes.CodeIO, Message: bounded([]byte(fmt.Sprintf("%s did not start: %v\n%s", s, err, printed)))}
}

// tail returns the last lines of a file.
func tail(f *os.File) string {
	const most = 1200
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	b := make([]byte, min(st.Size(), most))
	n, _ := f.ReadAt(b, st.Size()-int64(len(b)))
	return bounded(b[:n])
}

func (d daemons) stop(ctx context.Context, s service, kill bool) (bool, error) {
	p, up := d.running(s)
	if up {
		if err := end(ctx, []process{p}, kill, s.timeout); err != nil {
			return true, err
		}
	} else if err := d.awaitExit(ctx, s); err != nil {
		return false, err
	}
	// Children of the same program that outlive a killed parent.
	if left := processesWith(s.spec.Path, s.mark()); len(left) > 0 {
		up = true
		if err := end(ctx, left, kill, time.Second); err != nil {
			return true, err
		}
	}
	if _, other := lookProcess(pidFile(s.spec.PIDFile)); other {
		return up, nil // it names another process
	}
	return up, removeFile(s.spec.PIDFile)
}

// endScopes does nothing: scopes are of systemd.
func (daemons) endScopes(context.Context, service) (bool, error) { return false, nil }

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
	for _, p := range processesThat(func(p process) bool { return p.executes(s.spec.Path) && p.isForeign() }) {
		if ns, err := os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/ns/pid"); err != nil || ns != here {
			continue
		}
		command := stop
		if command == "" {
			command = "kill " + strconv.Itoa(p.pid)
		}
		found = append(found, fmt.Sprintf("%s (process %d) runs and was not started by Berth; run `%s`, then try again",
			filepath.Base(s.spec.Path), p.pid, command))
	}
	return found
}
