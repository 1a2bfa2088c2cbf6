package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Machines are emulated without hardware acceleration, as that is missing or broken in
// many virtual machines. A boot takes one to two minutes.

const (
	emulator = "qemu-system-x86_64"
	// bootTime bounds a boot. Several machines on two processors take minutes.
	bootTime = 10 * time.Minute
	// quick are parameters of the kernel that switch off what protects it from its own
	// users and costs an emulated processor much. Nothing that a machine proves needs it.
	quick = "mitigations=off init_on_alloc=0 randomize_kstack_offset=off audit=0"
	// defaultMemory is the memory in MiB of a machine that declares none.
	defaultMemory = 1024
)

//go:embed setup.sh
var setupScript string

// setupUnit runs setup.sh at the first boot.
const setupUnit = `[Unit]
Description=Set up a machine of a lab of Berth
DefaultDependencies=no
ConditionPathExists=!/etc/berth-lab
Requires=dev-vdb.device
After=dev-vdb.device systemd-remount-fs.service systemd-tmpfiles-setup-dev.service
Before=sysinit.target systemd-networkd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/mkdir -p /run/lab
ExecStart=/usr/bin/mount -o ro /dev/vdb /run/lab
ExecStart=/bin/sh /run/lab/setup.sh
ExecStart=/usr/bin/umount /run/lab
StandardOutput=journal+console
[Install]
WantedBy=sysinit.target
`

// machinePackages are the packages that an image of machines has more than others.
func machinePackages() []string {
	return []string{"dbus", "linux-image-cloud-amd64", "systemd-sysv", "udev"}
}

// machineHooks are hooks of mmdebstrap (mmdebstrap(1), HOOKS); $1 is the root directory.
func machineHooks() []string {
	return []string{
		// A small initrd is read and unpacked sooner.
		`--essential-hook=mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"` +
			` && echo MODULES=list >"$1/etc/initramfs-tools/conf.d/berth-lab"` +
			` && printf "virtio_pci\nvirtio_blk\next4\n" >"$1/usr/share/initramfs-tools/modules.d/berth-lab"`,
		`--customize-hook=printf %s '` + setupUnit + `' >"$1/etc/systemd/system/lab-setup.service"` +
			` && chroot "$1" systemctl --quiet enable lab-setup systemd-networkd ssh`,
		// As deploy/hosts.md says: Berth starts its own daemons, and no package does.
		`--customize-hook=for unit in "$1"/etc/systemd/system/multi-user.target.wants/*.service; do case ${unit##*/} in` +
			` ssh.service | systemd-*) ;; *) chroot "$1" systemctl --quiet disable "${unit##*/}" ;; esac; done`,
		// Nothing runs beside a test on a slow machine.
		`--customize-hook=chroot "$1" systemctl --quiet disable apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer`,
		// Their disks have no encryption, integrity or partitions. systemd runs each generator
		// whenever it reads its units again (systemd.generator(7)).
		`--customize-hook=mkdir -p "$1/etc/systemd/system-generators" && for g in cryptsetup gpt-auto hibernate-resume integritysetup` +
			` rc-local system-update veritysetup; do ln -s /dev/null "$1/etc/systemd/system-generators/systemd-$g-generator"; done`,
		// Keys of the lab replace these. An empty machine-id becomes one at the first
		// boot, which does not enable units again then (machine-id(5)).
		`--customize-hook=rm -f "$1"/etc/ssh/ssh_host_* && : >"$1/etc/machine-id" && printf "127.0.0.1 localhost\n" >"$1/etc/hosts"`,
	}
}

// BuildMachineImage returns the image of machines of a suite, as BuildImage does. Its
// directory has kernel, initrd and disk.
func BuildMachineImage(ctx context.Context, images, suite string, packages []string, log *slog.Logger) (Image, error) {
	r := recipe{packages: slices.Concat(machinePackages(), packages), hooks: machineHooks(), disk: makeDisk}
	i, err := buildImage(ctx, images, suite, r, log)
	if err != nil {
		return Image{}, fmt.Errorf("image %s of machines: %w", suite, err)
	}
	return i, nil
}

// makeDisk makes kernel, initrd and disk of the root directory in dir.
func makeDisk(ctx context.Context, dir string) error {
	root := filepath.Join(dir, "root")
	for name, pattern := range map[string]string{"kernel": "vmlinuz-*", "initrd": "initrd.img-*"} {
		found, err := filepath.Glob(filepath.Join(root, "boot", pattern))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("want one %s in /boot, found %d", pattern, len(found))
		}
		if err := os.Rename(found[0], filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return makeFilesystem(ctx, root, filepath.Join(dir, "disk"), 6<<30)
}

// makeFilesystem makes a file with an ext4 filesystem of the size that has the files of a
// directory. It needs neither a mount nor a loop device.
func makeFilesystem(ctx context.Context, dir, file string, size int64) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-d", dir, file).CombinedOutput(); err != nil {
		return fmt.Errorf("mke2fs: %w: %s", err, last(out))
	}
	return nil
}

// deviceNumbers are numbers of devices that can replace GPUs on a machine: opening and
// closing one changes nothing (see init.sh). The kernel loads their modules when they are opened.
func deviceNumbers() []string {
	return []string{"10:229", "10:237", "10:235", "10:203", "10:238"} // fuse, loop-control, autofs, cuse, vhost-net
}

// checkMachines checks for the programs of machines, and whether this machine can
// emulate the nodes.
func checkMachines(nodes []Node) error {
	for _, p := range []string{emulator, "qemu-img", "mke2fs"} {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s is missing: run deploy/prepare as root, or install qemu-system-x86, qemu-utils and e2fsprogs", p)
		}
	}
	_, have, err := MachineSize()
	if err != nil {
		return err
	}
	need := 0
	for _, n := range nodes {
		need += memoryOf(n)
		if most := len(deviceNumbers()); len(n.Devices) > most {
			return fmt.Errorf("host %s: an emulated machine has at most %d GPUs", n.Name, most)
		}
	}
	if need > have {
		return fmt.Errorf("the machines need %d MiB of memory, and this one has %d; start fewer of them", need, have)
	}
	return nil
}

// memoryOf returns the memory in MiB of a machine. Its kernel keeps some of it, and
// a node has to have what it declares.
func memoryOf(n Node) int {
	if n.MemoryMiB == 0 {
		return defaultMemory
	}
	return n.MemoryMiB + n.MemoryMiB/32 + 128
}

// machine is a host that is an emulated machine.
type machine struct {
	lab *Lab
	Node
	index int
}

// machine returns the machine of a node.
func (l *Lab) machine(node string) (machine, error) {
	i := slices.IndexFunc(l.Nodes, func(n Node) bool { return n.Name == node })
	if i < 0 {
		return machine{}, fmt.Errorf("unknown host %s", node)
	}
	if !l.Machines {
		return machine{}, fmt.Errorf("host %s has no init; start the lab with --machines", node)
	}
	return machine{l, l.Nodes[i], i}, nil
}

// Reboot reboots a machine in order and waits until it is up again.
func (l *Lab) Reboot(ctx context.Context, node string) error {
	if err := l.end(ctx, node, "reboot"); err != nil {
		return err
	}
	return l.Boot(ctx, node)
}

// PowerOff shuts a machine down in order. Boot starts it again.
func (l *Lab) PowerOff(ctx context.Context, node string) error { return l.end(ctx, node, "poweroff") }

// end runs a verb of systemctl that ends the emulator of a machine, and waits for that.
func (l *Lab) end(ctx context.Context, node, verb string) error {
	m, err := l.machine(node)
	if err != nil {
		return err
	}
	if out, err := l.Run(ctx, node, "true"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	_, _ = l.Run(ctx, node, "systemctl", verb) // it may cut the connection
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	for len(m.emulators()) > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("host %s does not end after systemctl %s: %w", node, verb, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return l.controlGroups().remove(ctx, node)
}

func (m machine) file(name string) string {
	return filepath.Join(m.lab.Dir, "hosts", m.Name, name)
}

// boot starts a machine and waits until it is up. Its first boot makes the disk.
func (m machine) boot(ctx context.Context) error {
	if len(m.emulators()) > 0 {
		return errors.New("it is up already")
	}
	if err := m.makeDisks(ctx); err != nil {
		return err
	}
	cable := m.lab.bridge().cable(m.index)
	_ = ip(ctx, "link", "delete", cable) // of the boot before
	if err := ip(ctx, "tuntap", "add", "dev", cable, "mode", "tap"); err != nil {
		return err
	}
	if err := ip(ctx, "link", "set", cable, "master", m.lab.Bridge, "up"); err != nil {
		return err
	}
	// In the control groups of the host, by which Down finds it.
	if err := m.lab.controlGroups().make(m.Name); err != nil {
		return err
	}
	args, err := m.lab.controlGroups().start(m.Name, m.emulation()...)
	if err != nil {
		return err
	}
	log, err := os.Create(m.file("log"))
	if err != nil {
		return err
	}
	defer log.Close()
	// Without ctx and in a new session, as the machine outlives this process.
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its output is in the log
		close(ended)
	}()
	return m.await(ctx, ended)
}

// makeDisks makes the disk of the system, with the changes to that of the image, and the
// disk with the files for setup.sh.
func (m machine) makeDisks(ctx context.Context) error {
	if _, err := os.Stat(m.file("disk.qcow2")); err == nil {
		return nil
	}
	dir := m.file("setup")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	devices := ""
	for i, d := range m.Devices {
		devices += d + "=" + deviceNumbers()[i] + " "
	}
	files := map[string]string{
		"setup.sh": setupScript,
		"machine": fmt.Sprintf("node=%s\naddress=%s\nuser=%s\ndevices='%s'\nprepared=%t\n", m.Name, m.Address, DefaultUser, devices,
			!m.lab.Unprepared),
	}
	for name, from := range map[string]string{
		"hosts.txt": "hosts.txt", "berth-host": "berth-host", "authorized_keys": "authorized_keys", "login_keys": "login_keys",
		"ssh_host_ed25519_key": filepath.Join("hosts", m.Name, "ssh_host_ed25519_key"),
	} {
		data, err := os.ReadFile(filepath.Join(m.lab.Dir, from))
		if err != nil {
			return err
		}
		files[name] = string(data)
	}
	size := int64(8 << 20)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
		size += int64(len(text))
	}
	if err := makeFilesystem(ctx, dir, m.file("setup.disk"), size); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw",
		"-b", filepath.Join(m.lab.Lower, "disk"), m.file("disk.qcow2")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("qemu-img: %w: %s", err, last(out))
	}
	return nil
}

// emulation returns the command of the emulator.
func (m machine) emulation() []string {
	cpus := max(m.CPUs, 1)
	return []string{
		emulator, "-name", m.Name, "-nodefaults", "-no-user-config", "-display", "none",
		// The emulator ends at a reboot, and another one starts: a second boot in the same
		// process, with two processors, took four minutes until the kernel started.
		"-action", "reboot=shutdown",
		// Accelerated guests stop early in virtual machines that only seem to have
		// acceleration. With -cpu max, MariaDB 11.8 of Debian forky answers a client wrongly:
		// error 5027, number of columns in result. The emulator of Debian 12 gets cmpxchg16b
		// wrong: the kernel of trixie panics in __kmalloc_noprof, so it is not offered.
		"-machine", "q35,accel=tcg", "-cpu", "qemu64,-cx16", "-smp", fmt.Sprint(cpus), "-m", fmt.Sprint(memoryOf(m.Node)),
		"-kernel", filepath.Join(m.lab.Lower, "kernel"), "-initrd", filepath.Join(m.lab.Lower, "initrd"),
		"-append", "root=/dev/vda rw console=ttyS0 net.ifnames=0 quiet systemd.show_status=0 " + quick + " systemd.hostname=" + m.Name,
		"-chardev", "file,id=console,append=on,path=" + m.file("console"), "-serial", "chardev:console",
		"-drive", "if=virtio,format=qcow2,file=" + m.file("disk.qcow2"),
		"-drive", "if=virtio,format=raw,readonly=on,file=" + m.file("setup.disk"),
		"-netdev", "tap,id=net,script=no,downscript=no,ifname=" + m.lab.bridge().cable(m.index),
		"-device", "virtio-net-pci,netdev=net,romfile=,mac=" + mac(m.Address),
		"-device", "virtio-rng-pci",
	}
}

// emulators returns the processes of the machine on this one.
func (m machine) emulators() []int {
	groups, err := m.lab.controlGroups().of(m.Name)
	if err != nil {
		return nil
	}
	var out []int
	for _, g := range groups {
		out = append(out, members(g)...)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(pid int) bool { return !alive(pid) })
}

// await waits until the machine has booted and Berth may log in. ended: the emulator ended.
func (m machine) await(ctx context.Context, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	seen := "sshd does not answer"
	for {
		if answers(m.Address, 20*time.Second) {
			// systemd removes the file when users may log in (pam_nologin(8)).
			_, err := m.lab.Run(ctx, m.Name, "test", "!", "-e", "/run/nologin")
			if err == nil {
				return nil
			}
			seen = err.Error()
		}
		select {
		case <-ended:
			return fmt.Errorf("the emulator ended: %s", tail(m.file("log")))
		case <-ctx.Done():
			return fmt.Errorf("not up at %s: %s; the end of %s: %s", m.Address, seen, m.file("console"), tail(m.file("console")))
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// login returns a program on a machine, run as root over SSH.
func (l *Lab) login(ctx context.Context, node string, argv []string) (*exec.Cmd, error) {
	m, err := l.machine(node)
	if err != nil {
		return nil, err
	}
	words := []string{"exec", "env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	for _, word := range argv {
		words = append(words, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	return exec.CommandContext(ctx, "ssh", "-F", "none", "-i", l.LoginKeyFile(), "-o", "UserKnownHostsFile="+l.KnownHosts(),
		"-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=20",
		"root@"+m.Address, strings.Join(words, " ")), nil
}
