# Sets up a machine at its first boot; a prepared one as deploy/hosts.md says.
# The unit lab-setup of the image starts it before the network and the other
# services. The files of the lab are in /run/lab.
set -eu

main() {
	cd /run/lab
	. ./machine # node, address, user, devices, prepared
	echo "$node" >/etc/hostname
	cp hosts.txt /etc/hosts
	# Names come from the host list only; the network is not asked.
	sed -i 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf
	printf '[Match]\nName=eth0\n[Network]\nAddress=%s/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n' "$address" >/etc/systemd/network/lab.network

	install -m 0600 ssh_host_ed25519_key /etc/ssh/ssh_host_ed25519_key
	ssh-keygen -y -f /etc/ssh/ssh_host_ed25519_key >/etc/ssh/ssh_host_ed25519_key.pub
	install -d -m 0700 /root/.ssh
	install -m 0600 login_keys /root/.ssh/authorized_keys
	if [ "$prepared" = true ]; then
		prepare
	fi
	touch /etc/berth-lab # last: the unit checks for it
}

# prepare does what an administrator does on a node for Berth.
prepare() {
	gpus
	useradd --system --create-home --shell /bin/sh "$user"
	install -d -m 0755 "/home/$user/.ssh"
	install -m 0644 authorized_keys "/home/$user/.ssh/authorized_keys"
	echo "$user ALL=(root) NOPASSWD: /usr/local/sbin/berth-host \"\"" >/etc/sudoers.d/berth
	chmod 0440 /etc/sudoers.d/berth
	install -m 0755 berth-host /usr/local/sbin/berth-host
	install -d -m 0755 /etc/berth
	sha256sum /usr/local/sbin/berth-host | cut -d' ' -f1 >/etc/berth/berth-host.sha256
}

# gpus makes the device files of GPUs, now and at each boot. Each has the number of a
# device of its own, so that a device control group distinguishes them.
gpus() {
	for device in $devices; do # PATH=MAJOR:MINOR
		echo "c ${device%=*} 0666 root root - ${device#*=}"
	done >/etc/tmpfiles.d/berth-lab-gpus.conf
	systemd-tmpfiles --create /etc/tmpfiles.d/berth-lab-gpus.conf
}

main
