package agent

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"berth/runtimes"
)

// servicer runs services: under systemd if that is the init system, otherwise as
// daemons. The profile has checked the unit.
type servicer interface {
	state(ctx context.Context, s service) (runtimes.ServiceStatus, error)
	// start returns once the service runs. A running service is not restarted.
	start(ctx context.Context, s service) (changed bool, err error)
	// stop returns once the service is down. kill: with SIGKILL at once.
	stop(ctx context.Context, s service, kill bool) (changed bool, err error)
	// endScopes ends scopes that the daemon left behind.
	endScopes(ctx context.Context, s service) (changed bool, err error)
	// obstacles describes conflicts with the distribution's own service.
	obstacles(ctx context.Context, s service) ([]string, error)
}

// service is a service of a host.
type service struct {
	name, unit string
	spec       runtimes.ServiceSpec
	timeout    time.Duration // of a start or stop
}

// mark is an entry in the environment of a daemon that Berth starts. A process without
// it is not the service, even if the pid file names it, and gets no signal.
func (s service) mark() string { return "BERTH_SERVICE=" + s.name + "/" + s.unit }

func (s service) String() string {
	if s.unit == "" {
		return s.name
	}
	return s.name + " " + s.unit
}

const maxServiceTimeout = 10 * time.Minute

// services runs the services of the profiles.
type services struct {
	allow *allowList
	state stateDir
	init  servicer
}

func (v services) do(ctx context.Context, op *runtimes.Service) (runtimes.Result, error) {
	var res runtimes.Result
	spec, err := v.allow.service(op)
	if err != nil {
		return res, err
	}
	s := service{name: op.Name, unit: op.Unit, spec: spec, timeout: 10 * time.Second}
	if op.TimeoutMS != 0 {
		s.timeout = time.Duration(op.TimeoutMS) * time.Millisecond
	}
	if s.timeout <= 0 || s.timeout > maxServiceTimeout {
		return res, invalid("the timeout of a service is at most %s", maxServiceTimeout)
	}
	if op.Verb != "state" {
		lock, err := v.state.lock(ctx, serviceRange(s.name, s.unit), false)
		if err != nil {
			return res, err
		}
		defer lock.Close()
	}
	if op.Verb == "start" || op.Verb == "restart" {
		if err := v.checkDevices(ctx, s, op.Verb); err != nil {
			return res, err
		}
	}
	if res.Changed, err = v.change(ctx, s, op.Verb); err != nil {
		return res, err
	}
	st, err := v.init.state(ctx, s)
	if !st.Running {
		missing := ""
		if files := missingDevices(s); len(files) > 0 {
			missing = missingText(files)
		}
		why := slices.DeleteFunc([]string{missing, whyEnded(s.spec), st.Detail}, func(text string) bool { return text == "" })
		st.Detail = strings.Join(why, "; ")
	}
	res.Service = &st
	return res, err
}

// change does a verb on a service and reports whether that had an effect.
func (v services) change(ctx context.Context, s service, verb string) (bool, error) {
	switch verb {
	case "state":
		return false, nil
	case "start":
		return v.init.start(ctx, s)
	case "stop":
		return v.init.stop(ctx, s, false)
	case "kill":
		return v.init.stop(ctx, s, true)
	case "restart":
		if _, err := v.init.stop(ctx, s, false); err != nil {
			return false, err
		}
		return v.init.start(ctx, s)
	case "clear":
		return v.clear(ctx, s)
	}
	return false, invalid("unknown service verb %s", plain(verb))
}

// clear stops a service and ends what its daemon left running.
func (v services) clear(ctx context.Context, s service) (bool, error) {
	stopped, err := v.init.stop(ctx, s, false)
	if err != nil {
		return stopped, err
	}
	scopes, err := v.init.endScopes(ctx, s)
	if err != nil {
		return stopped || scopes, err
	}
	ended, err := endMarked(ctx, s)
	return stopped || scopes || ended, err
}

// checkDevices refuses to start a service without its device files, as the daemon ends
// some time later and its log does not say so plainly.
func (v services) checkDevices(ctx context.Context, s service, verb string) error {
	missing := missingDevices(s)
	if len(missing) == 0 {
		return nil
	}
	if st, err := v.init.state(ctx, s); err != nil || st.Running && verb == "start" {
		return err
	}
	return &Fault{Code: runtimes.CodeNotFound, Message: missingText(missing)}
}

func missingText(devices []string) string {
	return fmt.Sprintf("no device file %s on this host; make it, and have it made at each boot (tmpfiles.d(5))",
		strings.Join(devices, ", "))
}

// missingDevices returns the service's device files that do not exist.
func missingDevices(s service) []string {
	return slices.DeleteFunc(slices.Clone(s.spec.Devices), func(name string) bool {
		st, err := os.Lstat(name)
		return err == nil && st.Mode()&os.ModeCharDevice != 0
	})
}

// endMarked ends processes that a daemon started and left behind, such as one that
// keeps a control group. They have the service's mark.
func endMarked(ctx context.Context, s service) (bool, error) {
	left := processesThat(func(p process) bool { return p.carries(s.mark()) })
	if len(left) == 0 {
		return false, nil
	}
	return true, end(ctx, left, false, s.timeout)
}
