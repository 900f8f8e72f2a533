//! A loadable `libnvidia-ml.so.1` with one GPU in MIG mode, for tests of the agent.
//!
//! Invariant: it knows nothing of the product; its profiles, starts and refusals are written down here a second time, from
//! NVIDIA's MIG user guide, so that a wrong table of ours is refused as the driver would. It uses the standard library alone and
//! is compiled by the test that loads it, once for each test, with the path of its state in `FAKE_NVML_STATE`.
//!
//! The state is a text: first `<PCI id> <MIG mode> <fault at> <fault>`, then for each GPU instance `<id> <profile index> <start>
//! <compute instances> <in use>`. It is read by `nvmlInit_v2` and written after every change, so that it outlives the process;
//! to take the instances out of it is what a reboot does. The fault (`error`, `killed-before`, `killed-after`) happens at the
//! call with that number, counted from 0 after `nvmlInit_v2`; -1 is none.

#![allow(non_snake_case, reason = "the names are NVML's")]

use std::ffi::c_int;
use std::fmt::Write as _;
use std::fs;
use std::sync::Mutex;

const SUCCESS: u32 = 0;
const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const NOT_FOUND: u32 = 6;
const IN_USE: u32 = 19;
const INSUFFICIENT_RESOURCES: u32 = 23;
const UNKNOWN: u32 = 999;

/// One row of `nvidia-smi mig -lgip` and `-lgipp`.
struct Profile {
    index: u32,
    id: u32,
    compute: u32,
    memory: u32,
    most: u32,
    starts: &'static [u32],
    media: bool,
}

const fn row(
    index: u32,
    id: u32,
    [compute, memory, most]: [u32; 3],
    starts: &'static [u32],
    media: bool,
) -> Profile {
    Profile { index, id, compute, memory, most, starts, media }
}

/// A100 and H100.
static EIGHT: [Profile; 7] = [
    row(0, 19, [1, 1, 7], &[0, 1, 2, 3, 4, 5, 6], false),
    row(7, 20, [1, 1, 1], &[0, 1, 2, 3, 4, 5, 6], true),
    row(9, 15, [1, 2, 4], &[0, 2, 4, 6], false),
    row(1, 14, [2, 2, 3], &[0, 2, 4], false),
    row(2, 9, [3, 4, 2], &[0, 4], false),
    row(3, 5, [4, 4, 1], &[0], false),
    row(4, 0, [7, 8, 1], &[0], false),
];

/// A30.
static FOUR: [Profile; 5] = [
    row(0, 14, [1, 1, 4], &[0, 1, 2, 3], false),
    row(7, 21, [1, 1, 1], &[0, 1, 2, 3], true),
    row(1, 5, [2, 2, 2], &[0, 2], false),
    row(8, 6, [2, 2, 1], &[0, 2], true),
    row(3, 0, [4, 4, 1], &[0], false),
];

/// Compute slices of the compute instance profiles, by index; the rest is not offered.
const COMPUTE: [u32; 5] = [1, 2, 3, 4, 7];

struct GpuInstance {
    id: u32,
    index: u32,
    start: u32,
    compute: bool,
    used: bool,
}

struct State {
    pci: u32,
    mode: u32,
    fault_at: i64,
    fault: String,
    instances: Vec<GpuInstance>,
}

static STATE: Mutex<State> =
    Mutex::new(State { pci: 0, mode: 0, fault_at: -1, fault: String::new(), instances: Vec::new() });

impl State {
    fn read() -> Option<State> {
        let text = fs::read_to_string(env!("FAKE_NVML_STATE")).ok()?;
        let mut lines = text.lines();
        let head: Vec<&str> = lines.next()?.split(' ').collect();
        let [pci, mode, fault_at, fault] = head[..] else { return None };
        let instances = lines.map(|line| {
            let fields: Vec<u32> = line.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
            let [id, index, start, compute, used] = fields[..] else { return None };
            Some(GpuInstance { id, index, start, compute: compute > 0, used: used > 0 })
        });
        Some(State {
            pci: pci.parse().ok()?,
            mode: mode.parse().ok()?,
            fault_at: fault_at.parse().ok()?,
            fault: fault.to_owned(),
            instances: instances.collect::<Option<_>>()?,
        })
    }

    fn write(&self) {
        let mut text = format!("{} {} -1 none\n", self.pci, self.mode);
        for GpuInstance { id, index, start, compute, used } in &self.instances {
            let _ = writeln!(text, "{id} {index} {start} {} {}", u32::from(*compute), u32::from(*used));
        }
        fs::write(env!("FAKE_NVML_STATE"), text).unwrap();
    }

    fn profiles(&self) -> &'static [Profile] {
        if self.pci == 0x20B7_10DE { &FOUR } else { &EIGHT }
    }

    fn profile(&self, index: u32) -> &'static Profile {
        self.profiles().iter().find(|profile| profile.index == index).unwrap()
    }

    fn by_id(&self, id: u32) -> Option<&'static Profile> {
        self.profiles().iter().find(|profile| profile.id == id)
    }

    /// The instance behind a handle.
    fn at(&mut self, handle: usize) -> Option<&mut GpuInstance> {
        self.instances.iter_mut().find(|instance| instance.id as usize + HANDLES == handle)
    }

    /// Makes a GPU instance, or says why the driver would not.
    fn create(&mut self, profile: &'static Profile, start: u32, size: u32) -> Result<usize, u32> {
        if !profile.starts.contains(&start) || size != profile.memory {
            return Err(INVALID_ARGUMENT);
        }
        let beside = |other: &GpuInstance| {
            let theirs = self.profile(other.index);
            let apart = start + size <= other.start || other.start + theirs.memory <= start;
            apart && !(profile.media && theirs.media)
        };
        if !self.instances.iter().all(beside) {
            return Err(INSUFFICIENT_RESOURCES);
        }
        let id = (1..).find(|id| self.instances.iter().all(|other| other.id != *id)).unwrap();
        let index = profile.index;
        self.instances.push(GpuInstance { id, index, start, compute: false, used: false });
        self.write();
        Ok(id as usize + HANDLES)
    }
}

/// Handles are ids with this added, so that none is null.
const HANDLES: usize = 0x100;

unsafe extern "C" {
    fn getpid() -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
}

/// Ends this process as SIGKILL does.
fn die() -> ! {
    unsafe { kill(getpid(), 9) };
    std::process::abort()
}

/// Every call but `nvmlInit_v2` goes through here, where faults happen.
fn answer(call: impl FnOnce(&mut State) -> Result<(), u32>) -> u32 {
    let mut state = STATE.lock().unwrap();
    let now = state.fault_at == 0;
    state.fault_at -= i64::from(state.fault_at >= 0);
    match state.fault.as_str() {
        "error" if now => return UNKNOWN,
        "killed-before" if now => die(),
        _ => {}
    }
    let result = call(&mut state);
    if now && state.fault == "killed-after" {
        die();
    }
    result.err().unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> u32 {
    let Some(state) = State::read() else { return UNKNOWN };
    *STATE.lock().unwrap() = state;
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> u32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut u32) -> u32 {
    answer(|_| Ok(unsafe { *count = 1 }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut usize) -> u32 {
    answer(|_| if index == 0 { Ok(unsafe { *device = 1 }) } else { Err(INVALID_ARGUMENT) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(_: usize, current: *mut u32, pending: *mut u32) -> u32 {
    answer(|state| Ok(unsafe { (*current, *pending) = (state.mode, state.mode) }))
}

#[repr(C)]
pub struct PciInfo {
    bus_id_legacy: [u8; 16],
    domain_bus_device: [u32; 3],
    device_id: u32,
    subsystem_id: u32,
    bus_id: [u8; 32],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(_: usize, info: *mut PciInfo) -> u32 {
    answer(|state| Ok(unsafe { (*info).device_id = state.pci }))
}

#[repr(C)]
pub struct GpuProfileInfo {
    id: u32,
    p2p: u32,
    slices: u32,
    instances: u32,
    engines: [u32; 6],
    memory: u64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstanceProfileInfo(
    _: usize,
    index: u32,
    info: *mut GpuProfileInfo,
) -> u32 {
    answer(|state| {
        let found = state.profiles().iter().find(|profile| profile.index == index).ok_or(NOT_SUPPORTED)?;
        let (id, slices, instances) = (found.id, found.compute, found.most);
        let told = GpuProfileInfo { id, p2p: 0, slices, instances, engines: [0; 6], memory: 0 };
        Ok(unsafe { *info = told })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstances(
    _: usize,
    id: u32,
    handles: *mut usize,
    count: *mut u32,
) -> u32 {
    answer(|state| {
        let index = state.by_id(id).ok_or(INVALID_ARGUMENT)?.index;
        let mut listed = 0;
        for instance in state.instances.iter().filter(|instance| instance.index == index) {
            unsafe { *handles.add(listed) = instance.id as usize + HANDLES };
            listed += 1;
        }
        Ok(unsafe { *count = listed as u32 })
    })
}

#[repr(C)]
pub struct GpuInstanceInfo {
    device: usize,
    id: u32,
    profile: u32,
    start: u32,
    size: u32,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpuInstanceGetInfo(handle: usize, info: *mut GpuInstanceInfo) -> u32 {
    answer(|state| {
        let found = state.at(handle).ok_or(NOT_FOUND)?;
        let (id, start, index) = (found.id, found.start, found.index);
        let profile = state.profile(index);
        let told = GpuInstanceInfo { device: 1, id, profile: profile.id, start, size: profile.memory };
        Ok(unsafe { *info = told })
    })
}

#[repr(C)]
pub struct ComputeProfileInfo {
    id: u32,
    slices: u32,
    instances: u32,
    processors: u32,
    engines: [u32; 5],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
    handle: usize,
    index: u32,
    _: u32,
    info: *mut ComputeProfileInfo,
) -> u32 {
    answer(|state| {
        let whole = state.at(handle).ok_or(NOT_FOUND)?.index;
        let whole = state.profile(whole).compute;
        let slices = *COMPUTE.get(index as usize).filter(|slices| **slices <= whole).ok_or(NOT_SUPPORTED)?;
        let instances = whole / slices;
        let told = ComputeProfileInfo { id: index, slices, instances, processors: 0, engines: [0; 5] };
        Ok(unsafe { *info = told })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpuInstanceGetComputeInstances(
    handle: usize,
    id: u32,
    handles: *mut usize,
    count: *mut u32,
) -> u32 {
    answer(|state| {
        let found = state.at(handle).ok_or(NOT_FOUND)?;
        let (compute, index) = (found.compute, found.index);
        let listed = compute && COMPUTE[id as usize] == state.profile(index).compute;
        if listed {
            unsafe { *handles = handle };
        }
        Ok(unsafe { *count = u32::from(listed) })
    })
}

#[repr(C)]
pub struct Placement {
    start: u32,
    size: u32,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceCreateGpuInstanceWithPlacement(
    _: usize,
    id: u32,
    placement: *const Placement,
    handle: *mut usize,
) -> u32 {
    answer(|state| {
        let profile = state.by_id(id).ok_or(INVALID_ARGUMENT)?;
        let made = unsafe { state.create(profile, (*placement).start, (*placement).size)? };
        Ok(unsafe { *handle = made })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpuInstanceCreateComputeInstance(
    handle: usize,
    id: u32,
    compute: *mut usize,
) -> u32 {
    answer(|state| {
        let found = state.at(handle).ok_or(NOT_FOUND)?;
        if std::mem::replace(&mut found.compute, true) {
            return Err(INSUFFICIENT_RESOURCES);
        }
        let index = found.index;
        if COMPUTE[id as usize] != state.profile(index).compute {
            return Err(NOT_SUPPORTED);
        }
        state.write();
        Ok(unsafe { *compute = handle })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlComputeInstanceDestroy(handle: usize) -> u32 {
    answer(|state| {
        let found = state.at(handle).ok_or(NOT_FOUND)?;
        if found.used {
            return Err(IN_USE);
        }
        found.compute = false;
        state.write();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpuInstanceDestroy(handle: usize) -> u32 {
    answer(|state| {
        if state.at(handle).ok_or(NOT_FOUND)?.compute {
            return Err(IN_USE);
        }
        state.instances.retain(|instance| instance.id as usize + HANDLES != handle);
        state.write();
        Ok(())
    })
}
