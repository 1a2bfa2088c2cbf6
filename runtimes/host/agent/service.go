package agent

import (
	"context"
	"time"

	"berth/runtimes"
)

const maxServiceTimeout = 10 * time.Minute

func (a *Agent) service(ctx context.Context, op *runtimes.Service) (runtimes.Result, error) {
	var res runtimes.Result
	spec, err := a.serviceSpec(op)
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
		lock, err := a.lock(ctx, serviceRange(s.name, s.unit), false)
		if err != nil {
			return res, err
		}
		defer lock.Close()
	}
	switch op.Verb {
	case "state":
	case "start":
		res.Changed, err = a.services.start(ctx, s)
	case "stop":
		res.Changed, err = a.services.stop(ctx, s, false)
	case "kill":
		res.Changed, err = a.services.stop(ctx, s, true)
	case "restart":
		if _, err = a.services.stop(ctx, s, false); err == nil {
			res.Changed, err = a.services.start(ctx, s)
		}
	case "clear":
		var ended bool
		if res.Changed, err = a.services.stop(ctx, s, false); err == nil {
			ended, err = endMarked(ctx, s)
			res.Changed = res.Changed || ended
		}
	default:
		return res, invalid("unknown service verb %s", plain(op.Verb))
	}
	if err != nil {
		return res, err
	}
	st, err := a.services.state(ctx, s)
	res.Service = &st
	return res, err
}

// endMarked ends processes that a daemon started and left behind, such as one that
// keeps a control group. They have the service's mark.
func endMarked(ctx context.Context, s service) (bool, error) {
	left := processesThat(func(p process) bool { return p.carries(s.mark()) })
	if len(left) == 0 {
		return false, nil
	}
	return true, daemons{}.end(ctx, left, false, s.timeout)
}

func (a *Agent) serviceSpec(op *runtimes.Service) (runtimes.ServiceSpec, error) {
	for _, p := range a.profiles {
		make, ok := p.Services[op.Name]
		if !ok {
			continue
		}
		spec, err := make(op.Unit, op.Params)
		if err != nil {
			return spec, refuse("service %s %s: %v", plain(op.Name), plain(op.Unit), err)
		}
		return spec, nil
	}
	return runtimes.ServiceSpec{}, refuse("this host's profile has no service %s", plain(op.Name))
}
