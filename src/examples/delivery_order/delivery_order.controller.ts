/**
 * The sample's HTTP API. Translates requests and answers, nothing else. Bodies are validated by the
 * types that the compiler emits with the decorators (`tsc`, swc): a runner that only strips types would skip it.
 */
import { Body, Controller, Get, Inject, Param, Patch, Post } from '@nestjs/common';
import { ApiBadRequestResponse, ApiBody, ApiConflictResponse, ApiCreatedResponse } from '@nestjs/swagger';
import { ApiNotFoundResponse, ApiOkResponse, ApiTags } from '@nestjs/swagger';
import { ChangeStatusDto, CreateDeliveryOrderDto, DeliveryOrderDto } from './delivery_order.dto.js';
import type { DeliveryOrder } from './delivery_order.schema.js';
import { DeliveryOrderService } from './delivery_order.service.js';

@ApiTags('delivery orders')
@Controller({ path: 'delivery-orders', version: '1' })
export class DeliveryOrderController {
  constructor(@Inject(DeliveryOrderService) private readonly service: DeliveryOrderService) {}

  @Post()
  @ApiBody({ type: CreateDeliveryOrderDto })
  @ApiCreatedResponse({ type: DeliveryOrderDto })
  @ApiBadRequestResponse({ description: 'The body is not valid' })
  @ApiConflictResponse({ description: 'An order of this number exists' })
  async create(@Body() body: CreateDeliveryOrderDto): Promise<DeliveryOrderDto> {
    return toDto(await this.service.create(body));
  }

  @Get(':delivery_no')
  @ApiOkResponse({ type: DeliveryOrderDto })
  @ApiNotFoundResponse({ description: 'No order has this number' })
  async find(@Param('delivery_no') delivery_no: string): Promise<DeliveryOrderDto> {
    return toDto(await this.service.find(delivery_no));
  }

  @Patch(':delivery_no/status')
  @ApiBody({ type: ChangeStatusDto })
  @ApiOkResponse({ type: DeliveryOrderDto })
  @ApiBadRequestResponse({ description: 'The body is not valid' })
  @ApiNotFoundResponse({ description: 'No order has this number' })
  @ApiConflictResponse({ description: 'The order cannot take this status now' })
  async changeStatus(
    @Param('delivery_no') delivery_no: string,
    @Body() { status }: ChangeStatusDto,
  ): Promise<DeliveryOrderDto> {
    return toDto(await this.service.changeStatus(delivery_no, status));
  }
}

function toDto(order: DeliveryOrder): DeliveryOrderDto {
  const { delivery_no, channel, recipient, status, version, created_at, updated_at } = order;
  const items = order.items.map(({ sku, quantity }) => ({ sku, quantity }));
  return { delivery_no, channel, recipient, items, status, version, created_at, updated_at };
}
