//! NVML as a [`MigGpu`]: `nvml-wrapper` for what it has, its raw calls for GPU and compute instances.
//!
//! Invariant: `unsafe` is here and nowhere else in the crate, every raw function is looked up before it is called (an old
//! driver lacks some), and no function that changes MIG mode is named. Handles are read anew for every call, so none outlives
//! the instance that it stands for.
//!
//! Profile numbers are those of `nvml.h`: an instance profile's index is what is asked for, its id is what the driver answers
//! and wants to have back.

use std::ffi::OsStr;
use std::mem::MaybeUninit;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, NVML_COMPUTE_INSTANCE_PROFILE_COUNT, NVML_DEVICE_MIG_ENABLE,
    nvmlComputeInstance_t, nvmlComputeInstanceProfileInfo_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t, nvmlReturn_t,
};

use super::gpu::{Call, GpuError, Instance, MigGpu};
use crate::mig::{GpuModel, Placement, ProfileGeometry};

/// `NVML_GPU_INSTANCE_PROFILE_*`, in the order of their values.
const GPU_PROFILES: [&str; 17] = [
    "1_SLICE",
    "2_SLICE",
    "3_SLICE",
    "4_SLICE",
    "7_SLICE",
    "8_SLICE",
    "6_SLICE",
    "1_SLICE_REV1",
    "2_SLICE_REV1",
    "1_SLICE_REV2",
    "1_SLICE_GFX",
    "2_SLICE_GFX",
    "4_SLICE_GFX",
    "1_SLICE_NO_ME",
    "2_SLICE_NO_ME",
    "1_SLICE_ALL_ME",
    "2_SLICE_ALL_ME",
];

/// Compute slices of `NVML_COMPUTE_INSTANCE_PROFILE_*`, in the order of their values; the last, of one slice, is a variant.
const COMPUTE_SLICES: [u8; 7] = [1, 2, 3, 4, 7, 8, 6];

/// The driver's library, open and initialised.
#[derive(Debug)]
pub struct Driver(Nvml);

impl Driver {
    /// Opens the library at `path`, `libnvidia-ml.so.1` of the driver where it is `None`.
    pub fn open(path: Option<&OsStr>) -> Result<Self, GpuError> {
        let path = path.unwrap_or(OsStr::new("libnvidia-ml.so.1"));
        let nvml = Nvml::builder().lib_path(path).init();
        nvml.map(Driver).map_err(|error| refused(&format!("open {}", path.display()), &error))
    }

    /// How many GPUs there are, of any kind.
    pub fn count(&self) -> Result<u32, GpuError> {
        self.0.device_count().map_err(|error| refused("count GPUs", &error))
    }

    /// The GPU with NVML's `index`, which must be in MIG mode and of a known model.
    pub fn gpu(&self, index: u32) -> Result<NvmlGpu<'_>, GpuError> {
        let what = format!("read GPU {index}");
        let read = |error| refused(&what, &error);
        let device = self.0.device_by_index(index).map_err(read)?;
        if device.mig_mode().map_err(read)?.current != NVML_DEVICE_MIG_ENABLE {
            return Err(GpuError::ModeOff { gpu: index });
        }
        let pci = device.pci_info().map_err(read)?.pci_device_id;
        let unknown = |error| GpuError::Driver { what: what.clone(), reason: format!("{error}") };
        let model = GpuModel::by_pci(pci).map_err(unknown)?;
        Ok(NvmlGpu { nvml: &self.0, device, model })
    }
}

/// One GPU in MIG mode.
#[derive(Debug)]
pub struct NvmlGpu<'a> {
    nvml: &'a Nvml,
    device: Device<'a>,
    model: &'static GpuModel,
}

impl MigGpu for NvmlGpu<'_> {
    fn model(&self) -> &'static GpuModel {
        self.model
    }

    fn instances(&self) -> Result<Vec<Instance>, GpuError> {
        let mut instances = Vec::new();
        for profile in self.model.profiles {
            let read = |error| refused(&format!("list instances of {}", profile.name), &error);
            for (handle, info) in self.of_profile(profile).map_err(read)? {
                let placement = placed(profile, &info)?;
                let usable = match self.compute(handle).map_err(read)?.as_slice() {
                    [] => false,
                    [(slices, _)] if *slices == profile.name.compute_slices() => true,
                    _ => {
                        let found = format!("{placement} is divided into several compute instances");
                        return Err(GpuError::Foreign { found });
                    }
                };
                instances.push(Instance { placement, id: info.id, usable });
            }
        }
        Ok(instances)
    }

    fn call(&mut self, call: Call) -> Result<(), GpuError> {
        let (Call::CreateGpu(placement)
        | Call::CreateCompute(placement)
        | Call::DestroyCompute(placement)
        | Call::DestroyGpu(placement)) = call;
        let done = match call {
            Call::CreateGpu(_) => self.create_gpu(placement),
            Call::CreateCompute(_) => self.create_compute(placement),
            Call::DestroyCompute(_) => self.destroy_compute(placement),
            Call::DestroyGpu(_) => self.destroy_gpu(placement),
        };
        done.map_err(|error| match error {
            NvmlError::InUse => GpuError::InUse(placement),
            NvmlError::NotFound => GpuError::Absent(placement),
            error => refused(&call.to_string(), &error),
        })
    }
}

impl NvmlGpu<'_> {
    /// What the driver says of a profile; `None` when it does not offer it.
    fn offer(&self, profile: &ProfileGeometry) -> Result<Option<nvmlGpuInstanceProfileInfo_t>, NvmlError> {
        let index = (0..).zip(GPU_PROFILES).find(|(_, name)| *name == profile.nvml);
        let (index, _) = index.ok_or(NvmlError::NotSupported)?;
        let sym = nvml_sym(self.nvml.lib().nvmlDeviceGetGpuInstanceProfileInfo.as_ref())?;
        // SAFETY: the device belongs to the open library, and `info` is a struct of integers.
        offered(unsafe { filled(|info| sym(self.device.handle(), index, info)) })
    }

    /// The GPU instances of a profile.
    fn of_profile(
        &self,
        profile: &ProfileGeometry,
    ) -> Result<Vec<(nvmlGpuInstance_t, nvmlGpuInstanceInfo_t)>, NvmlError> {
        let Some(offer) = self.offer(profile)? else { return Ok(Vec::new()) };
        let list = nvml_sym(self.nvml.lib().nvmlDeviceGetGpuInstances.as_ref())?;
        let describe = nvml_sym(self.nvml.lib().nvmlGpuInstanceGetInfo.as_ref())?;
        // SAFETY: NVML writes at most the profile's `instanceCount` handles, for which there is room.
        let handles = handles(offer.instanceCount, |room, count| unsafe {
            list(self.device.handle(), offer.id, room, count)
        })?;
        // SAFETY: the handles were listed just now, and `info` is a struct of integers and a pointer.
        let info = |handle| unsafe { filled(|info| describe(handle, info)) };
        handles.into_iter().map(|handle| Ok((handle, info(handle)?))).collect()
    }

    /// The handle of an instance.
    fn handle(&self, placement: Placement) -> Result<nvmlGpuInstance_t, NvmlError> {
        let profile = self.model.profile(placement.profile).map_err(|_| NvmlError::NotFound)?;
        let at = u32::from(placement.start);
        let found = self.of_profile(profile)?.into_iter().find(|(_, info)| info.placement.start == at);
        found.map(|(handle, _)| handle).ok_or(NvmlError::NotFound)
    }

    /// What the driver says of the compute profile with this index in a GPU instance; `None` when it is not offered there.
    fn compute_offer(
        &self,
        handle: nvmlGpuInstance_t,
        index: u32,
    ) -> Result<Option<nvmlComputeInstanceProfileInfo_t>, NvmlError> {
        let sym = nvml_sym(self.nvml.lib().nvmlGpuInstanceGetComputeInstanceProfileInfo.as_ref())?;
        let engine = NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED;
        // SAFETY: the handle was listed just now, and `info` is a struct of integers.
        offered(unsafe { filled(|info| sym(handle, index, engine, info)) })
    }

    /// The compute instances of a GPU instance, each with its compute slices.
    fn compute(&self, handle: nvmlGpuInstance_t) -> Result<Vec<(u8, nvmlComputeInstance_t)>, NvmlError> {
        let list = nvml_sym(self.nvml.lib().nvmlGpuInstanceGetComputeInstances.as_ref())?;
        let mut found = Vec::new();
        for index in 0..NVML_COMPUTE_INSTANCE_PROFILE_COUNT {
            let Some(offer) = self.compute_offer(handle, index)? else { continue };
            // SAFETY: NVML writes at most the profile's `instanceCount` handles, for which there is room.
            let handles =
                handles(offer.instanceCount, |room, count| unsafe { list(handle, offer.id, room, count) })?;
            let slices = u8::try_from(offer.sliceCount).unwrap_or(u8::MAX);
            found.extend(handles.into_iter().map(|compute| (slices, compute)));
        }
        Ok(found)
    }

    fn create_gpu(&self, placement: Placement) -> Result<(), NvmlError> {
        let profile = self.model.profile(placement.profile).map_err(|_| NvmlError::NotFound)?;
        let offer = self.offer(profile)?.ok_or(NvmlError::NotSupported)?;
        let sym = nvml_sym(self.nvml.lib().nvmlDeviceCreateGpuInstanceWithPlacement.as_ref())?;
        let (start, size) = (u32::from(placement.start), u32::from(profile.memory_slices));
        let wanted = nvmlGpuInstancePlacement_t { start, size };
        // SAFETY: the device belongs to the open library, `wanted` outlives the call, and a handle is a pointer.
        let made = unsafe {
            filled::<nvmlGpuInstance_t>(|made| sym(self.device.handle(), offer.id, &raw const wanted, made))
        };
        made.map(drop)
    }

    fn create_compute(&self, placement: Placement) -> Result<(), NvmlError> {
        let handle = self.handle(placement)?;
        let slices = placement.profile.compute_slices();
        let index = (0..).zip(COMPUTE_SLICES).find(|(_, offered)| *offered == slices);
        let (index, _) = index.ok_or(NvmlError::NotSupported)?;
        let offer = self.compute_offer(handle, index)?.ok_or(NvmlError::NotSupported)?;
        let sym = nvml_sym(self.nvml.lib().nvmlGpuInstanceCreateComputeInstance.as_ref())?;
        // SAFETY: the handle was listed just now, and the handle that is written is a pointer.
        let made = unsafe { filled::<nvmlComputeInstance_t>(|made| sym(handle, offer.id, made)) };
        made.map(drop)
    }

    fn destroy_compute(&self, placement: Placement) -> Result<(), NvmlError> {
        let compute = self.compute(self.handle(placement)?)?;
        let [(_, compute)] = compute.as_slice() else { return Err(NvmlError::NotFound) };
        let sym = nvml_sym(self.nvml.lib().nvmlComputeInstanceDestroy.as_ref())?;
        // SAFETY: the handle was listed just now and is not used afterwards.
        nvml_try(unsafe { sym(*compute) })
    }

    fn destroy_gpu(&self, placement: Placement) -> Result<(), NvmlError> {
        let handle = self.handle(placement)?;
        let sym = nvml_sym(self.nvml.lib().nvmlGpuInstanceDestroy.as_ref())?;
        // SAFETY: the handle was listed just now and is not used afterwards.
        nvml_try(unsafe { sym(handle) })
    }
}

/// Where an instance is, by the driver's word.
fn placed(profile: &ProfileGeometry, info: &nvmlGpuInstanceInfo_t) -> Result<Placement, GpuError> {
    let start = u8::try_from(info.placement.start).ok().filter(|start| profile.starts.contains(*start));
    let found = || format!("GPU instance {} of {} starts at {}", info.id, profile.name, info.placement.start);
    start.map(|start| Placement::new(profile.name, start)).ok_or_else(|| GpuError::Foreign { found: found() })
}

/// A profile that the GPU or the GPU instance does not have is no error.
fn offered<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match answer {
        Ok(offer) => Ok(Some(offer)),
        Err(NvmlError::NotSupported | NvmlError::InvalidArg) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lets `write` fill a value of NVML's.
///
/// # Safety
///
/// Zeroes must be a valid `T`, which holds for NVML's structs of integers and pointers.
unsafe fn filled<T: Copy>(write: impl FnOnce(*mut T) -> nvmlReturn_t) -> Result<T, NvmlError> {
    let mut value = MaybeUninit::<T>::zeroed();
    nvml_try(write(value.as_mut_ptr()))?;
    // SAFETY: the caller vouches for zeroes, and NVML writes nothing but whole fields.
    Ok(unsafe { value.assume_init() })
}

/// Lets `list` write up to `most` handles.
fn handles<T>(
    most: u32,
    list: impl FnOnce(*mut *mut T, *mut u32) -> nvmlReturn_t,
) -> Result<Vec<*mut T>, NvmlError> {
    let mut handles = vec![std::ptr::null_mut(); usize::try_from(most).unwrap_or_default()];
    let mut count = most;
    nvml_try(list(handles.as_mut_ptr(), &raw mut count))?;
    handles.truncate(usize::try_from(count).unwrap_or_default());
    Ok(handles)
}

fn refused(what: &str, error: &NvmlError) -> GpuError {
    GpuError::Driver { what: what.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests;
